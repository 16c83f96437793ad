//! `cargo xtask torture`: builds the programs of the run, and starts the torture runs.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{built, cargo, command_line, run};
use crate::programs::{PROGRAMS, WITH_ALL};
use crate::tooling;

/// The runs without arguments: one minute on each database, always with the same seed.
const USUAL: [[&str; 6]; 2] = [
    ["--db", "sqlite", "--minutes", "1", "--seed", "1"],
    ["--db", "postgres", "--minutes", "1", "--seed", "1"],
];

/// Builds the programs and starts a run with `args`, or the usual runs without arguments.
pub(crate) fn torture(root: &Path, args: &[String]) -> Result<()> {
    tooling::require_postgres()?;
    run(cargo(root, &PROGRAMS).args(WITH_ALL))?;
    let program = built("holdpoint-torture")?;
    let with = |args: &[&str]| {
        let mut command = Command::new(&program);
        command.current_dir(root).args(args);
        command
    };
    if args.is_empty() {
        let [shown, hidden] = USUAL.map(|usual| with(&usual));
        return run_both(shown, hidden);
    }
    run(with(&[]).args(args))
}

/// Runs two commands at once, because each of them waits for most of its time. The output of the second appears when
/// both have ended.
fn run_both(mut shown: Command, mut hidden: Command) -> Result<()> {
    let line = command_line(&hidden);
    let started = hidden.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let second = started.with_context(|| format!("could not start `{line}`"))?;
    let first = run(&mut shown);
    let Output { status, stdout, stderr } = second.wait_with_output()?;
    std::io::stderr().write_all(&stderr)?;
    std::io::stdout().write_all(&stdout)?;
    first?;
    ensure!(status.success(), "`{line}` ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_at_once_pass_only_if_both_pass() {
        let run_of = |status: u8| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {status}")]);
            command
        };
        let both = |one, other| run_both(run_of(one), run_of(other)).map_err(|error| error.to_string());
        assert_eq!(both(0, 0), Ok(()));
        assert!(both(3, 0).is_err_and(|error| error.contains("exit 3")));
        assert!(both(0, 4).is_err_and(|error| error.contains("exit 4")));
    }
}
