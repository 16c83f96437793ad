//! The server that a step talks to.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{built, run};

/// A running server, with the model of the demo. Dropping it kills it.
pub(crate) struct Server {
    pub(crate) address: String,
    child: Child,
    /// The stdout of the server, open while the server runs, so that its writes do not fail.
    stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts the built server in this folder, on a free port, with these variables.
    pub(crate) fn start(folder: &Path, settings: &[(&str, &str)]) -> Result<Self> {
        let log = folder.join("server.log");
        let log_file = File::create(&log).with_context(|| format!("could not write {}", log.display()))?;
        let mut command = Command::new(built("holdpoint")?);
        command.args(["--bind", "127.0.0.1:0", "--database-url", "sqlite://holdpoint.db"]);
        command.current_dir(folder).env("HOLDPOINT_LOG__LEVEL", "warn").envs(settings.iter().copied());
        // A step is a single caller with very many requests, which the rate limits would refuse.
        for rate in ["REQUESTS_PER_MINUTE", "TURNS_PER_MINUTE", "DECISIONS_PER_MINUTE"] {
            command.env(format!("HOLDPOINT_LIMITS__{rate}"), "0");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        let mut child = command.spawn().context("could not start the server")?;
        let stdout = BufReader::new(child.stdout.take().context("the server has no output")?);
        let mut server = Self { address: String::new(), child, stdout };
        for line in server.stdout.by_ref().lines() {
            if let Some((_, address)) = line?.split_once("holdpoint listens on ") {
                server.address = address.trim().to_owned();
                return Ok(server);
            }
        }
        bail!("the server did not start; see {}", log.display())
    }

    /// Stops the server with SIGTERM, like an operator. The server must still run and must exit with status
    /// 0.
    pub(crate) fn stop(&mut self) -> Result<()> {
        run(Command::new("kill").args(["-TERM", &self.child.id().to_string()]))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}; see server.log in its folder");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may be gone already.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// Makes an empty folder for a server, with the folder of its files.
pub(crate) fn fresh_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("could not empty {}", folder.display()))?;
    }
    let files = folder.join("holdpoint-files");
    fs::create_dir_all(&files).with_context(|| format!("could not create {}", files.display()))
}
