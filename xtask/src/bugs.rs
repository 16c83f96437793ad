//! `cargo xtask bugs`: checks that each planted bug of the torture run, a patch in `torture/bugs`, applies to the tree and
//! compiles.
//!
//! The patches are applied to a copy of the tree. As many as do not conflict are compiled at once, because the time goes
//! into the crates that all of them change.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::layout::git;
use crate::no_more_arguments;
use crate::process::{built, capture, cargo};
use crate::programs::WITH_ALL;

/// The folder of the planted bugs, a patch each.
const BUGS: &str = "torture/bugs";

/// The copy of the tree. A file that the tree has no more stays there, and no module names it.
const COPY: &str = "target/bugs";

/// What a bug changes, and the server that the torture run builds with it. The example adds the features that the
/// dependencies have in `clippy`, so that no dependency is checked again.
const CHECKED: [&str; 9] = [
    "check",
    "--quiet",
    "--workspace",
    "--locked",
    "--lib",
    "--bin",
    "holdpoint-torture-server",
    "--example",
    "embed",
];

/// A patch that has to be written again.
#[derive(Debug, PartialEq, Eq)]
struct OutdatedBug {
    patch: String,
    failure: &'static str,
    /// The messages of git or of the compiler.
    messages: String,
}

/// Checks that each planted bug applies and compiles.
pub(crate) fn check(root: &Path, args: &[String]) -> Result<()> {
    no_more_arguments("bugs", args)?;
    let outdated = outdated_bugs(root, &compiler_errors)?;
    for OutdatedBug { patch, failure, messages } in &outdated {
        println!("{BUGS}/{patch} {failure}:\n{messages}");
    }
    if !outdated.is_empty() {
        bail!("{} planted bug(s) are outdated; write the patch again for the changed code", outdated.len());
    }
    Ok(())
}

/// The outdated bugs of this tree. `errors_of` compiles a tree, and returns the errors if it does not compile.
fn outdated_bugs(
    root: &Path,
    errors_of: &dyn Fn(&Path) -> Result<Option<String>>,
) -> Result<Vec<OutdatedBug>> {
    let mut outdated = Vec::new();
    let mut remaining = patches(root)?;
    while !remaining.is_empty() {
        copy(root)?;
        let (mut applied, mut conflicting) = (Vec::new(), Vec::new());
        for patch in remaining {
            match errors_of_apply(root, &patch)? {
                None => applied.push(patch),
                Some(messages) if applied.is_empty() => {
                    outdated.push(OutdatedBug { patch, failure: "does not apply", messages });
                }
                Some(_) => conflicting.push(patch),
            }
        }
        outdated.extend(uncompiled(root, &applied, errors_of)?);
        remaining = conflicting;
    }
    outdated.sort_by(|one, other| one.patch.cmp(&other.patch));
    Ok(outdated)
}

/// Which of the patches, all of them applied to the copy, do not compile. If all of them together do not, each is compiled
/// alone.
fn uncompiled(
    root: &Path,
    applied: &[String],
    errors_of: &dyn Fn(&Path) -> Result<Option<String>>,
) -> Result<Vec<OutdatedBug>> {
    let mut uncompiled = Vec::new();
    if applied.is_empty() || errors_of(&root.join(COPY))?.is_none() {
        return Ok(uncompiled);
    }
    for patch in applied {
        copy(root)?;
        errors_of_apply(root, patch)?;
        if let Some(messages) = errors_of(&root.join(COPY))? {
            uncompiled.push(OutdatedBug { patch: patch.clone(), failure: "does not compile", messages });
        }
    }
    Ok(uncompiled)
}

fn patches(root: &Path) -> Result<Vec<String>> {
    let mut patches = Vec::new();
    for entry in fs::read_dir(root.join(BUGS)).context(BUGS)? {
        patches.push(entry?.file_name().to_string_lossy().into_owned());
    }
    patches.sort();
    Ok(patches)
}

/// Makes the copy equal to the tree. Only files that differ are written, so that the compiler does not check the others
/// again.
fn copy(root: &Path) -> Result<()> {
    let listing = capture(git(root).args(["ls-files", "-co", "--exclude-standard", "-z"]))?;
    let listing = String::from_utf8(listing).context("a file name is not UTF-8")?;
    for path in listing.split('\0').filter(|path| root.join(path).is_file()) {
        let (bytes, to) = (fs::read(root.join(path)).context(path.to_owned())?, root.join(COPY).join(path));
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).context(path.to_owned())?;
        }
        fs::write(&to, bytes).context(path.to_owned())?;
    }
    Ok(())
}

/// Applies the patch to the copy. If it does not apply, the copy is unchanged, and the messages of git are returned.
fn errors_of_apply(root: &Path, patch: &str) -> Result<Option<String>> {
    let folder = format!("--directory={COPY}");
    let applied = git(root).args(["apply", &folder]).arg(format!("{BUGS}/{patch}")).output()?;
    Ok((!applied.status.success()).then(|| String::from_utf8_lossy(&applied.stderr).into_owned()))
}

/// The errors of the compiler for the copy. The dependencies are those that clippy checks, in the same target folder. The
/// wrapper, which only starts its arguments, keeps the crates of the copy apart from those of the tree: Cargo puts its name
/// into the names of their files.
fn compiler_errors(copy: &Path) -> Result<Option<String>> {
    let own = built("xtask")?;
    let target = own.ancestors().nth(2).context("the target folder is unknown")?;
    let mut command = cargo(copy, &CHECKED);
    command.args(WITH_ALL).env("CARGO_TARGET_DIR", target).env("RUSTC_WORKSPACE_WRAPPER", "env");
    let checked = command.output().context("could not start cargo")?;
    Ok((!checked.status.success()).then(|| String::from_utf8_lossy(&checked.stderr).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::path::PathBuf;

    /// A tree with the file `code`, and a patch for each pair: its name, and the line of the file that it replaces by the
    /// text.
    fn tree(test: &str, patches: &[(&str, &str, &str)]) -> PathBuf {
        let root = std::env::temp_dir().join(format!("planted-bugs-{test}-{}", std::process::id()));
        fs::create_dir_all(root.join(BUGS)).unwrap();
        fs::write(root.join("code"), "one\n2\n3\n4\n5\n6\n7\n8\ntwo\n").unwrap();
        fs::write(root.join(".gitignore"), "/target\n").unwrap();
        capture(git(&root).args(["init", "-q"])).unwrap();
        for (name, line, text) in patches {
            let hunk = match *line {
                "two" => format!("@@ -8,2 +8,2 @@\n 8\n-two\n+{text}\n"),
                line => format!("@@ -1,2 +1,2 @@\n-{line}\n+{text}\n 2\n"),
            };
            let patch = format!("A bug.\n\ndiff --git a/code b/code\n--- a/code\n+++ b/code\n{hunk}");
            fs::write(root.join(BUGS).join(name), patch).unwrap();
        }
        root
    }

    /// The outdated bugs, if a tree compiles that has no `error`, and the number of compiled trees.
    fn outdated_in(root: &Path) -> (Vec<(String, &'static str)>, usize) {
        let compiled = Cell::new(0);
        let errors_of = |tree: &Path| {
            compiled.set(compiled.get() + 1);
            let code = fs::read_to_string(tree.join("code"))?;
            Ok(code.contains("error").then_some(code))
        };
        let outdated = outdated_bugs(root, &errors_of).unwrap();
        fs::remove_dir_all(root).unwrap();
        (outdated.into_iter().map(|it| (it.patch, it.failure)).collect(), compiled.get())
    }

    #[test]
    fn patches_that_do_not_conflict_are_compiled_at_once() {
        let root = tree(
            "at-once",
            &[("a.patch", "one", "bug"), ("b.patch", "one", "other"), ("c.patch", "two", "bug")],
        );
        assert_eq!(outdated_in(&root), (Vec::new(), 2));
    }

    #[test]
    fn a_patch_whose_code_has_changed_is_named() {
        let root = tree("changed", &[("fits.patch", "one", "bug"), ("old.patch", "three", "bug")]);
        assert_eq!(outdated_in(&root), (vec![("old.patch".to_owned(), "does not apply")], 1));
    }

    #[test]
    fn a_patch_that_does_not_compile_is_named() {
        let root = tree("error", &[("a.patch", "one", "bug"), ("b.patch", "two", "error")]);
        assert_eq!(outdated_in(&root), (vec![("b.patch".to_owned(), "does not compile")], 3));
    }
}
