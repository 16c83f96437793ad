//! `cargo xtask torture`: builds the servers under test with all that can go wrong in them, and lets the run have them.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::process::{cargo, run};
use crate::steps::WITH_FAULTS;
use crate::tooling;

/// As part of the workspace, so that what both depend on is that of the tests' build and there already; and these two
/// alone, so that the server of the other steps has no faults in it.
const PROGRAMS: [&str; 5] =
    ["--workspace", "--bin", "holdpoint-torture", "--bin", "holdpoint-torture-server"];

/// What a run without arguments is: a minute on each database, always the same.
const USUAL: [[&str; 6]; 2] = [
    ["--db", "sqlite", "--minutes", "1", "--seed", "1"],
    ["--db", "postgres", "--minutes", "1", "--seed", "1"],
];

/// Further arguments go to the run.
pub(crate) fn torture(root: &Path, args: &[String]) -> Result<()> {
    tooling::require_postgres()?;
    run(cargo(root, &["build", "--locked"]).args(PROGRAMS).args(WITH_FAULTS))?;
    let program = root.join("target/debug/holdpoint-torture");
    if !args.is_empty() {
        return run(Command::new(program).current_dir(root).args(args));
    }
    for usual in USUAL {
        run(Command::new(&program).current_dir(root).args(usual))?;
    }
    Ok(())
}
