//! The start of other programs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// The variables that `cargo run` sets for xtask. A build script that watches such a variable, for example
/// the script of ring, would see a change between `cargo test` and `cargo xtask test`, and compile again
/// every time.
const SET_BY_CARGO_RUN: &[&str] = &[
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_LINKS",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_AUTHORS",
    "CARGO_PKG_DESCRIPTION",
    "CARGO_PKG_HOMEPAGE",
    "CARGO_PKG_LICENSE",
    "CARGO_PKG_LICENSE_FILE",
    "CARGO_PKG_NAME",
    "CARGO_PKG_README",
    "CARGO_PKG_REPOSITORY",
    "CARGO_PKG_RUST_VERSION",
    "CARGO_PKG_VERSION",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// Returns `cargo <args>` in the workspace root.
pub(crate) fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(args);
    for name in SET_BY_CARGO_RUN {
        command.env_remove(name);
    }
    command
}

/// Returns the path of a program of the workspace, which lies beside this one, wherever cargo builds.
pub(crate) fn built(program: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program is unknown")?;
    Ok(own.with_file_name(program))
}

/// Runs a command to its end. A status other than 0 is an error that names the command line.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    let status = command.status().with_context(|| format!("could not start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs a command to its end and returns its stdout. Its stderr goes to the terminal.
pub(crate) fn capture(command: &mut Command) -> Result<Vec<u8>> {
    let line = command_line(command);
    let Output { status, stdout, .. } =
        command.stderr(Stdio::inherit()).output().with_context(|| format!("could not start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(stdout)
}

/// Returns the output of `<program> --version`, or `None` if there is no such program.
pub(crate) fn version_of(program: &Path) -> Result<Option<String>> {
    match Command::new(program).arg("--version").output() {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()))
        }
        Ok(output) => bail!("`{} --version` ended with {}", program.display(), output.status),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not start `{}`", program.display())),
    }
}

/// Returns the command line as text.
pub(crate) fn command_line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c exit 3") && text.contains('3'), "{text}");
    }

    #[test]
    fn a_missing_program_has_no_version() {
        assert_eq!(version_of(Path::new("no-such-program-here")).unwrap(), None);
    }

    #[test]
    fn cargo_does_not_inherit_what_describes_xtask() {
        let command = cargo(Path::new("."), &["version"]);
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        assert_eq!(removed.len(), SET_BY_CARGO_RUN.len());
    }
}
