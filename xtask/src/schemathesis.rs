//! A run of schemathesis over the whole OpenAPI document. Every route receives requests that the document
//! allows and requests that it forbids, one by one and in chains. The document must describe every answer.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::openapi::FULL_DOCUMENT;
use crate::process::{capture, cargo, run};
use crate::steps::{PROGRAMS, WITH_ALL};
use crate::tooling;

const HERE: &str = "tests/schemathesis";
/// The folders of the servers. Each run creates them anew, and leaves them for the analysis of a failure.
const SERVED: &str = "target/schemathesis";

/// The key and the claims of the tokens in mode `jwt`.
const SECRET: &str = "nobody-uses-this-key-but-schemathesis";
const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "holdpoint";

/// Runs `cargo xtask schemathesis [seconds [seed]]`: this long in each mode, the modes side by side.
pub(crate) fn check(root: &Path, args: &[String]) -> Result<()> {
    let (seconds, seed) = match args {
        [] => (Ok(60), Ok(1)),
        [seconds] => (seconds.parse::<u32>(), Ok(1)),
        [seconds, seed] => (seconds.parse(), seed.parse::<u32>()),
        _ => bail!("`cargo xtask schemathesis` takes a number of seconds and a seed"),
    };
    let (Ok(seconds), Ok(seed)) = (seconds, seed) else {
        bail!("`cargo xtask schemathesis`: expected numbers, got {args:?}");
    };
    let programs = tooling::python_programs(root)?;
    run(cargo(root, &PROGRAMS).args(WITH_ALL))?;
    println!("schemathesis runs for {seconds} seconds in each mode; each run uses one core");
    let modes = thread::scope(|scope| {
        let run_in = |mode| Mode { name: mode, seconds, seed, root, programs: &programs }.run();
        let runs = ["none", "jwt"].map(|mode| (mode, scope.spawn(move || run_in(mode))));
        runs.map(|(mode, run)| (mode, run.join().unwrap_or_else(|_| Err(anyhow!("the run panicked")))))
    });
    // A run that failed may have written a part of its report.
    for (mode, _) in &modes {
        println!("mode {mode}");
        print!("{}", fs::read_to_string(report(root, mode)).unwrap_or_default());
    }
    for (mode, run) in modes {
        run.with_context(|| format!("mode {mode}"))?;
    }
    Ok(())
}

fn report(root: &Path, mode: &str) -> PathBuf {
    root.join(SERVED).join(mode).join("report.txt")
}

/// A run of schemathesis over a server in one mode of authentication.
#[derive(Clone, Copy)]
struct Mode<'a> {
    name: &'a str,
    seconds: u32,
    seed: u32,
    root: &'a Path,
    /// The folder of the programs from PyPI.
    programs: &'a Path,
}

impl Mode<'_> {
    /// Runs to the end. The output of the run is in the report.
    fn run(self) -> Result<()> {
        let Self { name, seconds, seed, root, programs } = self;
        let program = |name: &str| Command::new(programs.join(name));
        let folder = fresh_folder(root, name)?;
        let report = File::create(report(root, name)).context("could not write the report")?;
        let into_report = |command: &mut Command| -> Result<()> {
            run(command.stdout(report.try_clone()?).stderr(report.try_clone()?))
        };
        let mut server = Server::start(root, &folder, name)?;
        let mut token = program("python");
        token.arg(root.join(HERE).join("token.py")).args([SECRET, ISSUER, AUDIENCE]);
        let token = String::from_utf8(capture(&mut token)?)?;
        let mut schemathesis = program("schemathesis");
        schemathesis.current_dir(root).envs([("MODE", name), ("TOKEN", token.trim())]);
        schemathesis.args(["--config-file", &format!("{HERE}/schemathesis.toml"), "run"]);
        schemathesis.args([FULL_DOCUMENT, "--url", &server.address]);
        schemathesis.args(["--max-time", &seconds.to_string(), "--seed", &seed.to_string()]);
        into_report(&mut schemathesis)?;
        server.stop()?;
        into_report(program("python").arg(root.join(HERE).join("proof.py")).arg(folder.join("holdpoint.db")))
    }
}

fn fresh_folder(root: &Path, mode: &str) -> Result<PathBuf> {
    let folder = root.join(SERVED).join(mode);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("could not empty {}", folder.display()))?;
    }
    let files = folder.join("holdpoint-files");
    fs::create_dir_all(&files)
        .and_then(|()| fs::write(files.join("notes.txt"), "old news\n"))
        .with_context(|| format!("could not write into {}", files.display()))?;
    Ok(folder)
}

/// A running server. Dropping it kills it.
struct Server {
    address: String,
    child: Child,
    /// The stdout of the server, open while the server runs, so that its writes do not fail.
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(root: &Path, folder: &Path, mode: &str) -> Result<Self> {
        let log = folder.join("server.log");
        let log = File::create(&log).with_context(|| format!("could not write {}", log.display()))?;
        let mut command = Command::new(root.join("target/debug/holdpoint"));
        command.args(["--bind", "127.0.0.1:0", "--database-url", "sqlite://holdpoint.db"]);
        command.current_dir(folder).env("HOLDPOINT_LOG__LEVEL", "warn");
        if mode == "jwt" {
            command.envs([("HOLDPOINT_AUTH__MODE", mode), ("HOLDPOINT_AUTH__SECRET", SECRET)]);
            command.envs([("HOLDPOINT_AUTH__ISSUER", ISSUER), ("HOLDPOINT_AUTH__AUDIENCE", AUDIENCE)]);
        }
        // schemathesis is a single caller with very many requests, which the rate limits would refuse.
        for rate in ["REQUESTS_PER_MINUTE", "TURNS_PER_MINUTE", "DECISIONS_PER_MINUTE"] {
            command.env(format!("HOLDPOINT_LIMITS__{rate}"), "0");
        }
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
        bail!("the server did not start; see server.log below {SERVED}")
    }

    /// Stops the server with SIGTERM, like an operator. The server must still run and must exit with status
    /// 0.
    fn stop(&mut self) -> Result<()> {
        run(Command::new("kill").args(["-TERM", &self.child.id().to_string()]))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the server ended with {status}; see server.log below {SERVED}");
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
