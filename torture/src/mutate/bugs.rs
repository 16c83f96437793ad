//! The servers with a planted bug. A bug is a patch in `torture/bugs`. The server is built from a copy of the
//! tree with that patch, so that the product has no code of bugs.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Output;
use tokio::fs;
use tokio::process::Command;

/// The folder of the patches, in the tree.
const PATCHES: &str = "torture/bugs";
/// The folder of the copies with a bug, in the tree.
const COPIES: &str = "target/torture/bugs";
/// The target folder of all copies, in the tree. The dependencies are built once.
const TARGET: &str = "target/torture/build";
const SERVER: &str = "holdpoint-torture-server";

/// Returns the root of the tree that has the current folder.
pub(crate) async fn tree() -> Result<PathBuf> {
    let top = run(git(Path::new(".")).args(["rev-parse", "--show-toplevel"])).await?;
    let top = String::from_utf8(top.stdout).context("the path of the tree is not UTF-8")?;
    Ok(PathBuf::from(top.trim_end_matches('\n')))
}

/// Builds the server with a bug, and returns its path.
///
/// # Errors
/// The patch of the bug is missing, no longer applies, or does not compile.
pub(crate) async fn build(tree: &Path, bug: &str) -> Result<PathBuf> {
    let copy = tree.join(COPIES).join(bug);
    copy_files(tree, &copy).await.context("could not copy the tree")?;
    let patch = format!("{PATCHES}/{bug}.patch");
    let folder = format!("--directory={COPIES}/{bug}");
    run(git(tree).args(["apply", &folder, &patch])).await.with_context(|| format!("apply {patch}"))?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&copy).env("CARGO_TARGET_DIR", tree.join(TARGET)).args([
        "build",
        "--locked",
        "--workspace",
        "--features",
        "holdpoint/otel",
        "--bin",
        SERVER,
    ]);
    run(&mut cargo).await.with_context(|| format!("build {patch}"))?;
    // The build of the next bug replaces the program in the target folder.
    let server = copy.join(SERVER);
    fs::copy(tree.join(TARGET).join("debug").join(SERVER), &server)
        .await
        .context("could not copy the server")?;
    Ok(server)
}

/// Copies the files that git tracks or would track into a new folder. Each copy is newer than the build of
/// the bug before. Cargo relies on that: it takes all copies for the same package.
async fn copy_files(tree: &Path, copy: &Path) -> Result<()> {
    if fs::try_exists(copy).await? {
        fs::remove_dir_all(copy).await?;
    }
    let listed = run(git(tree).args(["ls-files", "-co", "--exclude-standard", "-z"])).await?;
    let listed = String::from_utf8(listed.stdout).context("a file name is not UTF-8")?;
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let (from, to) = (tree.join(path), copy.join(path));
        // The index still has a file whose deletion is not staged.
        if !fs::try_exists(&from).await? {
            continue;
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).await?;
        }
        fs::copy(&from, &to).await.with_context(|| path.to_owned())?;
    }
    Ok(())
}

/// Returns a git command for a folder. The removed variables would point to the repository of a git hook.
fn git(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder);
    for name in ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_PREFIX"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end. The error of a failed command has its messages.
async fn run(command: &mut Command) -> Result<Output> {
    let line = format!("{:?}", command.as_std());
    let output = command.kill_on_drop(true).output().await.with_context(|| line.clone())?;
    if !output.status.success() {
        bail!("{line} ended with {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_files_of_the_tree_are_copied_and_ignored_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, copy) = (folder.path().join("tree"), folder.path().join("tree/ignored/copy"));
        for (path, text) in [("src/lib.rs", "1"), (".gitignore", "/ignored"), ("ignored/copy/old.rs", "2")] {
            let path = tree.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        run(git(&tree).args(["init", "-q"])).await.unwrap();
        copy_files(&tree, &copy).await.unwrap();
        assert_eq!(std::fs::read_to_string(copy.join("src/lib.rs")).unwrap(), "1");
        assert!(copy.join(".gitignore").is_file() && !copy.join("ignored").exists());
        assert!(!copy.join("old.rs").exists(), "a file of an earlier copy");
    }

    #[tokio::test]
    async fn a_failed_command_returns_its_messages() {
        let error = run(git(Path::new(".")).arg("no-such-command")).await.unwrap_err().to_string();
        assert!(error.contains("no-such-command") && error.contains("is not a git command"), "{error}");
    }
}
