//! The lanes of tests between two commits: `t0`, `t1` and `t2`. Each contains the one before.

use std::path::Path;

use anyhow::Result;

use crate::process::{cargo, run};
use crate::programs::{FROM_OUTSIDE, PROGRAMS, WITH_ALL};
use crate::steps;

/// The crates without a database and without a server.
const PURE: [&str; 7] = [
    "holdpoint-core",
    "holdpoint-egress",
    "holdpoint-metrics",
    "holdpoint-models",
    "holdpoint-settings",
    "holdpoint-stream",
    "holdpoint-terminal",
];

/// The test programs that have the core.
const WITH_CORE: [&str; 4] = ["--test", "api", "--test", "engine"];

/// Their modules with the promises that most changes can break: a held call from the model to the next turn, who may
/// decide it, and what repeats and crosses.
const CORE: [&str; 17] = [
    "database::transitions::",
    "decisions::batch::",
    "decisions::decide::",
    "decisions::duplicates::",
    "decisions::hashes::",
    "decisions::one_continuation::",
    "decisions::quorum::",
    "events::",
    "executions::cancel::",
    "grants::",
    "inbox::",
    "policy::",
    "runs::",
    "threads::resource::",
    "turns::attach::",
    "turns::history::",
    "turns::streamed::",
];

/// A crate without a library, which has the features of all others: see its `Cargo.toml`.
const WITH_ALL_FEATURES: &str = "holdpoint-bench";

/// Runs the tests of the pure crates, each fuzz target for a fifth of a second.
pub(crate) fn t0(root: &Path) -> Result<()> {
    let mut command = cargo(root, &["test", "--locked", "--quiet", "--lib"]);
    let packages = PURE.iter().chain([&WITH_ALL_FEATURES]).flat_map(|name| ["-p", name]);
    run(command.args(packages).args(WITH_ALL).env("FUZZ_SECONDS", "0.2"))
}

/// Runs `t0`, and the core of the tests from outside on SQLite.
pub(crate) fn t1(root: &Path) -> Result<()> {
    t0(root)?;
    run(cargo(root, &PROGRAMS).args(WITH_CORE).args(WITH_ALL))?;
    let tests: Vec<String> = WITH_CORE.into_iter().chain(["--"]).chain(CORE).map(str::to_owned).collect();
    steps::run_tests(root, &tests, &["--skip", "on_postgres"])
}

/// Runs `t0`, and all tests from outside on SQLite.
pub(crate) fn t2(root: &Path) -> Result<()> {
    t0(root)?;
    run(cargo(root, &PROGRAMS).args(FROM_OUTSIDE).args(WITH_ALL))?;
    steps::run_tests(root, &FROM_OUTSIDE.map(str::to_owned), &["--skip", "on_postgres"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_of_the_core_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for module in CORE {
            let path = module.trim_end_matches("::").replace("::", "/");
            let files = ["tests/api", "tests/engine"]
                .iter()
                .flat_map(|folder| [format!("{folder}/{path}.rs"), format!("{folder}/{path}/mod.rs")]);
            assert!(files.map(|file| root.join(file)).any(|file| file.is_file()), "{module}");
        }
    }
}
