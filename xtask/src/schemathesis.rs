//! schemathesis over the whole OpenAPI document: every route is asked what the document allows and what it does not,
//! one by one and in chains, and whatever it answers has to be in the document.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{cargo, run};
use crate::tooling;

const HERE: &str = "tests/schemathesis";
/// The server's folder, made anew for each run and left for who looks into a failure.
const SERVED: &str = "target/schemathesis";

/// `cargo xtask schemathesis [seconds [seed]]`.
pub(crate) fn check(root: &Path, args: &[String]) -> Result<()> {
    let (seconds, seed) = match args {
        [] => ("90", "1"),
        [seconds] => (seconds.as_str(), "1"),
        [seconds, seed] => (seconds.as_str(), seed.as_str()),
        _ => bail!("`cargo xtask schemathesis` takes a number of seconds and a seed"),
    };
    for number in [seconds, seed] {
        ensure!(
            number.parse::<u32>().is_ok(),
            "`cargo xtask schemathesis`: expected numbers, got `{number}`"
        );
    }
    let programs = tooling::python_programs(root)?;
    run(&mut cargo(root, &["build", "--locked"]))?;
    let folder = root.join(SERVED);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("could not empty {}", folder.display()))?;
    }
    let files = folder.join("holdpoint-files");
    fs::create_dir_all(&files)
        .and_then(|()| fs::write(files.join("notes.txt"), "old news\n"))
        .with_context(|| format!("could not write into {}", files.display()))?;
    let mut server = Server::start(root, &folder)?;
    let mut schemathesis = Command::new(programs.join("schemathesis"));
    // The address is another one each time, and what it keeps for the next run is of this one.
    schemathesis.current_dir(root).args(["--config-file", &format!("{HERE}/schemathesis.toml"), "run"]);
    schemathesis.args([
        format!("{}/openapi.json", server.address).as_str(),
        "--max-time",
        seconds,
        "--seed",
        seed,
    ]);
    run(&mut schemathesis)?;
    server.stop()?;
    run(Command::new(programs.join("python"))
        .arg(root.join(HERE).join("proof.py"))
        .arg(folder.join("holdpoint.db")))
}

/// A running server. Dropping it kills it.
struct Server {
    address: String,
    child: Child,
    /// Open as long as it runs: what it writes has to find a reader.
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(root: &Path, folder: &Path) -> Result<Self> {
        let log = folder.join("server.log");
        let log = File::create(&log).with_context(|| format!("could not write {}", log.display()))?;
        let mut command = Command::new(root.join("target/debug/holdpoint"));
        command.args(["--bind", "127.0.0.1:0", "--database-url", "sqlite://holdpoint.db"]);
        command.env("HOLDPOINT_LOG__LEVEL", "warn").current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().context("could not start the server")?;
        let stdout = BufReader::new(child.stdout.take().context("the server has no output")?);
        let mut server = Self { address: String::new(), child, stdout };
        for line in server.stdout.by_ref().lines() {
            if let Some((_, address)) = line?.split_once("holdpoint listens on ") {
                server.address = address.trim().to_owned();
                return Ok(server);
            }
        }
        bail!("the server did not start; see {SERVED}/server.log")
    }

    /// As an operator stops it; it has to be there still, and to end well.
    fn stop(&mut self) -> Result<()> {
        run(Command::new("kill").args(["-TERM", &self.child.id().to_string()]))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}; see {SERVED}/server.log");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}
