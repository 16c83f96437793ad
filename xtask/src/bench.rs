//! `cargo xtask bench`: measures the server beside floors and a server on the AI SDK.

use std::path::Path;

use anyhow::Result;

use crate::process::{cargo, run};
use crate::tooling;

/// The server on the AI SDK.
const AI_SDK: &str = "bench/ai-sdk";

/// Installs what the measurement needs, builds it for release, and starts it with `args`. With `--criterion`, runs the
/// Criterion benches instead, and further arguments go to `cargo bench`.
pub(crate) fn bench(root: &Path, args: &[String]) -> Result<()> {
    if let Some((_, rest)) = args.split_first().filter(|(first, _)| *first == "--criterion") {
        let bench =
            ["bench", "--locked", "--package", "holdpoint", "--features", "bench", "--bench", "parts"];
        return run(cargo(root, &bench).args(rest));
    }
    tooling::require_node()?;
    tooling::require_postgres_server()?;
    tooling::install_node_project(root, AI_SDK)?;
    let program = ["run", "--release", "--locked", "--package", "holdpoint-bench", "--"];
    run(cargo(root, &program).args(args))
}
