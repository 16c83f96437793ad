//! `cargo xtask torture`: builds the server under test, and starts the torture run.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::{cargo, run};
use crate::steps::WITH_ALL;
use crate::tooling;

/// The arguments of the build. As part of the workspace, so that the features are those of the build of the
/// tests, whose library is used again.
const PROGRAMS: [&str; 5] =
    ["--workspace", "--bin", "holdpoint-torture", "--bin", "holdpoint-torture-server"];

/// The runs without arguments: one minute on each database, always with the same seed.
const USUAL: [[&str; 6]; 2] = [
    ["--db", "sqlite", "--minutes", "1", "--seed", "1"],
    ["--db", "postgres", "--minutes", "1", "--seed", "1"],
];

/// Builds the programs and starts a run with `args`, or the usual runs without arguments.
pub(crate) fn torture(root: &Path, args: &[String]) -> Result<()> {
    tooling::require_postgres()?;
    run(cargo(root, &["build", "--locked"]).args(PROGRAMS).args(WITH_ALL))?;
    let program = root.join("target/debug/holdpoint-torture");
    if !args.is_empty() {
        return run(Command::new(program).current_dir(root).args(args));
    }
    for usual in USUAL {
        run(Command::new(&program).current_dir(root).args(usual))?;
    }
    Ok(())
}
