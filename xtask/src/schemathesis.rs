//! A run of schemathesis over the whole OpenAPI document. Every route receives requests that the document
//! allows and requests that it forbids, one by one and in chains. The document must describe every answer.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use crate::openapi::FULL_DOCUMENT;
use crate::process::{capture, cargo, run};
use crate::programs::{PROGRAMS, WITH_ALL};
use crate::server::{Server, fresh_folder};
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
    let programs = tooling::python_programs(root, &tooling::SCHEMATHESIS)?;
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
        let folder = root.join(SERVED).join(name);
        fresh_folder(&folder)?;
        fs::write(folder.join("holdpoint-files/notes.txt"), "old news\n")
            .context("could not write a file")?;
        let report = File::create(report(root, name)).context("could not write the report")?;
        let into_report = |command: &mut Command| -> Result<()> {
            run(command.stdout(report.try_clone()?).stderr(report.try_clone()?))
        };
        let jwt = [
            ("HOLDPOINT_AUTH__MODE", name),
            ("HOLDPOINT_AUTH__SECRET", SECRET),
            ("HOLDPOINT_AUTH__ISSUER", ISSUER),
            ("HOLDPOINT_AUTH__AUDIENCE", AUDIENCE),
        ];
        let mut server = Server::start(&folder, if name == "jwt" { &jwt } else { &[] })?;
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
