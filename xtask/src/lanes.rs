//! The lanes of tests between two commits: `t0`, `t1` and `t2`. Each contains the one before.

use std::path::Path;

use anyhow::Result;

use crate::process::{cargo, run};
use crate::programs::{PROGRAMS, WITH_ALL};
use crate::steps;

/// The crates without a database and without a server.
const PURE: [&str; 5] =
    ["holdpoint-core", "holdpoint-egress", "holdpoint-metrics", "holdpoint-models", "holdpoint-stream"];

/// The modules of `tests/it` with the promises that most changes can break: a held call from the model to the next turn,
/// who may decide it, and what repeats and crosses.
const CORE: [&str; 17] = [
    "attach::",
    "batch::",
    "cancel::",
    "decide::",
    "duplicates::",
    "events::",
    "grants::",
    "hashes::",
    "history::",
    "inbox::",
    "one_continuation::",
    "policy::",
    "quorum::",
    "runs::",
    "threads::",
    "transitions::",
    "turns::",
];

/// Runs the tests of the pure crates, each fuzz target for a fifth of a second.
pub(crate) fn t0(root: &Path) -> Result<()> {
    let mut command = cargo(root, &["test", "--locked", "--quiet", "--lib"]);
    run(command.args(PURE.iter().flat_map(|name| ["-p", name])).env("FUZZ_SECONDS", "0.2"))
}

/// Runs `t0`, and the core of `tests/it` on SQLite.
pub(crate) fn t1(root: &Path) -> Result<()> {
    t0(root)?;
    run(cargo(root, &PROGRAMS).args(["--test", "it"]).args(WITH_ALL))?;
    let tests: Vec<String> = ["--test", "it", "--"].into_iter().chain(CORE).map(str::to_owned).collect();
    steps::run_tests(root, &tests, &["--skip", "on_postgres"])
}

/// Runs `t0`, and all of `tests/it` on SQLite.
pub(crate) fn t2(root: &Path) -> Result<()> {
    t0(root)?;
    run(cargo(root, &PROGRAMS).args(["--test", "it"]).args(WITH_ALL))?;
    let tests = ["--test", "it"].map(str::to_owned);
    steps::run_tests(root, &tests, &["--skip", "on_postgres"])
}
