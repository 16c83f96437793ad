//! `cargo xtask bench`: measures the server beside floors and a server on the AI SDK.

use std::path::Path;

use anyhow::Result;

use crate::process::{cargo, run};
use crate::tooling;

/// The server on the AI SDK.
const AI_SDK: &str = "bench/ai-sdk";

const HELP: &str = "\
Measures holdpoint beside floors, which only forward, and a server on AI SDK 7, and prints the ratios.
It installs Postgres and npm packages, and builds for release. `docs/performance.md` has the method.

Usage: cargo xtask bench [OPTIONS]

  --quick        short steps, and one repeat: at most five minutes
  --repeats N    how often each server is measured [default: 3, or 1 with --quick]
  --server NAME  measures only this server; may be repeated [default: all]
  --step NAME    runs only this step and the warm-ups; may be repeated [default: all]
  --criterion    runs the Criterion benches instead; further arguments go to `cargo bench`
  -h, --help     prints this text";

/// Installs what the measurement needs, builds it for release, and starts it with `args`. With `--criterion`, runs the
/// Criterion benches instead, and further arguments go to `cargo bench`.
pub(crate) fn bench(root: &Path, args: &[String]) -> Result<()> {
    if let Some((_, rest)) = args.split_first().filter(|(first, _)| *first == "--criterion") {
        let bench =
            ["bench", "--locked", "--package", "holdpoint", "--features", "bench", "--bench", "parts"];
        return run(cargo(root, &bench).args(rest));
    }
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{HELP}");
        return Ok(());
    }
    tooling::require_node()?;
    tooling::require_postgres_server()?;
    tooling::install_node_project(root, AI_SDK)?;
    let program = ["run", "--release", "--locked", "--package", "holdpoint-bench", "--"];
    run(cargo(root, &program).args(args))
}

#[cfg(test)]
mod tests {
    use super::HELP;

    #[test]
    fn the_help_has_each_option_of_the_program() {
        let program = include_str!("../../bench/src/main.rs");
        let (_, options) = program.split_once("struct Cli {").unwrap();
        let (options, _) = options.split_once("#[command(subcommand)]").unwrap();
        let options: Vec<_> = options
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with(['#', '/']))
            .filter_map(|line| Some(line.split_once(':')?.0))
            .collect();
        assert!(options.contains(&"quick"), "{options:?}");
        for option in options {
            assert!(HELP.contains(&format!("\n  --{option} ")), "{option}");
        }
    }
}
