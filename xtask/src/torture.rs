//! `cargo xtask torture`: builds the programs of the run, and starts the torture runs. `cargo xtask bugs`: checks
//! that its planted bugs are up to date.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::layout::git;
use crate::no_more_arguments;
use crate::process::{built, cargo, command_line, run};
use crate::programs::{PROGRAMS, WITH_ALL};
use crate::tooling;

/// The runs without arguments: one minute on each database, always with the same seed.
const USUAL: [[&str; 6]; 2] = [
    ["--db", "sqlite", "--minutes", "1", "--seed", "1"],
    ["--db", "postgres", "--minutes", "1", "--seed", "1"],
];

/// The folder of the planted bugs, a patch each.
const BUGS: &str = "torture/bugs";

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

/// Checks that the patch of each planted bug applies to the tree.
pub(crate) fn bugs(root: &Path, args: &[String]) -> Result<()> {
    no_more_arguments("bugs", args)?;
    let outdated = outdated_bugs(root)?;
    for (patch, error) in &outdated {
        println!("{BUGS}/{patch} does not apply:\n{error}");
    }
    if !outdated.is_empty() {
        bail!(
            "{} planted bug(s) no longer apply; write the patch again for the changed code",
            outdated.len()
        );
    }
    Ok(())
}

/// Returns the patches that do not apply, each with the error of git.
fn outdated_bugs(root: &Path) -> Result<Vec<(String, String)>> {
    let mut outdated = Vec::new();
    for entry in fs::read_dir(root.join(BUGS)).context(BUGS)? {
        let patch = entry?.file_name().to_string_lossy().into_owned();
        let checked = git(root).args(["apply", "--check"]).arg(format!("{BUGS}/{patch}")).output()?;
        if !checked.status.success() {
            outdated.push((patch, String::from_utf8_lossy(&checked.stderr).into_owned()));
        }
    }
    outdated.sort();
    Ok(outdated)
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

    #[test]
    fn a_patch_whose_code_has_changed_is_named() {
        let root = std::env::temp_dir().join(format!("torture-bugs-{}", std::process::id()));
        fs::create_dir_all(root.join(BUGS)).unwrap();
        fs::write(root.join("code.rs"), "one\ntwo\n").unwrap();
        let patch = |from: &str| {
            format!(
                "A bug.\n\ndiff --git a/code.rs b/code.rs\n--- a/code.rs\n+++ b/code.rs\n@@ -1,2 +1,2 @@\n one\n-{from}\n+bug\n"
            )
        };
        fs::write(root.join(BUGS).join("fits.patch"), patch("two")).unwrap();
        fs::write(root.join(BUGS).join("old.patch"), patch("three")).unwrap();
        let outdated = outdated_bugs(&root).unwrap();
        let names: Vec<&str> = outdated.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["old.patch"]);
        assert!(outdated[0].1.contains("code.rs"), "{}", outdated[0].1);
        fs::remove_dir_all(&root).unwrap();
    }
}
