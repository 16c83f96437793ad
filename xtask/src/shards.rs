//! `cargo xtask ci`: every step, as shards that can also run on machines of their own.
//!
//! A shard is a list of steps. The cheapest shard comes first, alone. Then two shards run at a time, because most tests
//! wait for servers, databases and clocks and leave a core to others. The output of a step appears when the step ends,
//! as a whole.

use std::fs::{self, File};
use std::io::{self, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{cargo, run};
use crate::programs::{PROGRAMS, WITH_ALL};
use crate::steps::{self, announce};
use crate::tooling;

/// Steps that run one after the other.
struct Shard {
    /// The name for `cargo xtask ci --shard`.
    name: &'static str,
    steps: &'static [&'static str],
}

/// The shard that runs first, alone: a slip costs seconds and not a build.
const FIRST: Shard = Shard { name: "quick", steps: &["fmt", "layout", "docs"] };

/// The shards that follow, in the order of their starts. The two suites are apart: each needs more than one core, and
/// what is between them mostly waits for a time to be over.
const OTHERS: [Shard; 5] = [
    Shard { name: "lints", steps: &["clippy", "bugs", "features", "doc", "kubernetes", "deny"] },
    Shard { name: "sqlite", steps: &["test-only"] },
    Shard { name: "faults", steps: &["torture", "fuzz"] },
    Shard { name: "clients", steps: &["schemathesis", "clients"] },
    Shard { name: "postgres", steps: &["postgres"] },
];

/// How many shards run at a time on one machine.
const AT_A_TIME: usize = 2;

/// The folder of the output of the steps that run.
const OUTPUT: &str = "target/tmp/ci";

/// What the shards have done so far.
#[derive(Default)]
struct Progress {
    started: usize,
    times: Vec<(&'static str, Duration)>,
    failed: Vec<String>,
}

/// Runs all shards, or the one that the arguments name. After a failure no other step starts.
pub(crate) fn ci(root: &Path, args: &[String]) -> Result<()> {
    let shards: Vec<&Shard> = match args {
        [] => OTHERS.iter().collect(),
        [flag, name] if flag == "--shard" => {
            let all = || [&FIRST].into_iter().chain(&OTHERS);
            match all().find(|shard| shard.name == name) {
                Some(shard) => vec![shard],
                None => bail!("no shard `{name}`; expected {}", list(all().map(|shard| shard.name))),
            }
        }
        _ => bail!("`cargo xtask ci` takes only `--shard` and a name"),
    };
    if args.is_empty() {
        steps::run_steps(root, FIRST.steps.iter().filter_map(|command| steps::find(command)))?;
        require_programs()?;
    }
    if args.is_empty() {
        // The tools are installed beside the build, which compiles on one core for a part of its time. If an
        // installation fails, the step that needs the tool installs it again and reports the error.
        thread::scope(|scope| {
            scope.spawn(|| tooling::install_node_projects(root).is_ok());
            scope.spawn(|| {
                for list in tooling::PYTHON_PACKAGES {
                    let _later_if_it_fails = tooling::python_programs(root, list);
                }
            });
            announce("build: the programs and the tests");
            run(cargo(root, &PROGRAMS).args(["--lib", "--tests"]).args(WITH_ALL))
        })?;
    }
    run_shards(root, &shards)
}

/// Minutes of compiling should not end with a missing program.
fn require_programs() -> Result<()> {
    tooling::require_node()?;
    tooling::require_postgres()?;
    tooling::require_nginx()?;
    tooling::require_chromium()?;
    tooling::require_python()?;
    tooling::require_java()?;
    Ok(())
}

fn run_shards(root: &Path, shards: &[&Shard]) -> Result<()> {
    fs::create_dir_all(root.join(OUTPUT)).with_context(|| format!("could not create {OUTPUT}"))?;
    let (began, progress) = (Instant::now(), Mutex::new(Progress::default()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(shards.len()) {
            scope.spawn(|| {
                while let Some(shard) = next(shards, &progress) {
                    for command in shard.steps {
                        if !lock(&progress).failed.is_empty() {
                            return;
                        }
                        run_apart(root, command, &progress);
                    }
                }
            });
        }
    });
    let Progress { times, failed, .. } = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    print!("{}", steps::summary(&times));
    println!("{:<12} {:>8.1}", "wall", began.elapsed().as_secs_f64());
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(())
}

/// Takes the next shard, unless a step has failed.
fn next<'a>(shards: &[&'a Shard], progress: &Mutex<Progress>) -> Option<&'a Shard> {
    let mut progress = lock(progress);
    let shard = shards.get(progress.started).filter(|_| progress.failed.is_empty())?;
    progress.started += 1;
    Some(shard)
}

/// Runs a step as a process of its own, and prints its output when it has ended.
fn run_apart(root: &Path, command: &'static str, progress: &Mutex<Progress>) {
    announce(&format!("{command}: started"));
    let started = Instant::now();
    let ended = run_step(root, command);
    let mut progress = lock(progress);
    progress.times.push((command, started.elapsed()));
    // The lock keeps the outputs of two steps apart.
    announce(&format!("{command}: ended after {:.0} s", started.elapsed().as_secs_f64()));
    let printed = File::open(output_of(root, command)).and_then(|mut log| io::copy(&mut log, &mut stdout()));
    let failure = match (ended, printed) {
        (Ok(true), Ok(_)) => return,
        (Ok(false), _) => {
            format!("step `{command}` failed\nxtask: run it alone with: cargo xtask {command}")
        }
        (Err(error), _) => format!("step `{command}` could not run: {error:#}"),
        (Ok(true), Err(error)) => format!("the output of step `{command}` is lost: {error}"),
    };
    progress.failed.push(failure);
}

/// Returns whether the step passed.
fn run_step(root: &Path, command: &str) -> Result<bool> {
    let path = output_of(root, command);
    let log = File::create(&path).with_context(|| format!("could not create {}", path.display()))?;
    let errors = log.try_clone().context("could not share the output")?;
    let own = std::env::current_exe().context("the path of this program is unknown")?;
    let mut step = Command::new(own);
    step.current_dir(root).arg(command).stdin(Stdio::null()).stdout(log).stderr(errors);
    Ok(step.status().with_context(|| format!("could not start the step `{command}`"))?.success())
}

fn output_of(root: &Path, command: &str) -> PathBuf {
    root.join(OUTPUT).join(format!("{command}.log"))
}

/// A step that panicked leaves the times as they are.
fn lock(progress: &Mutex<Progress>) -> MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_in_one_shard() {
        let shards = [&FIRST].into_iter().chain(&OTHERS);
        let mut in_shards: Vec<_> = shards.flat_map(|shard| shard.steps.iter().copied()).collect();
        let mut all: Vec<_> = steps::STEPS.iter().map(|step| step.command).collect();
        in_shards.sort_unstable();
        all.sort_unstable();
        assert_eq!(in_shards, all);
    }

    #[test]
    fn after_a_failure_no_shard_starts() {
        let shards: Vec<&Shard> = OTHERS.iter().collect();
        let progress = Mutex::new(Progress::default());
        assert_eq!(next(&shards, &progress).map(|shard| shard.name), Some("lints"));
        lock(&progress).failed.push("clippy".to_owned());
        assert!(next(&shards, &progress).is_none());
    }

    #[test]
    fn an_unknown_shard_is_named_with_the_known_ones() {
        let error = ci(Path::new("."), &["--shard".to_owned(), "x".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "no shard `x`; expected quick, lints, sqlite, faults, clients, postgres");
    }
}
