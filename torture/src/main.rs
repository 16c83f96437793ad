//! Breaks a running holdpoint in every way there is, and proves what it still promises.
//!
//! Servers of one build, on one database, are talked to, decided at, looked at and pried into, while they are killed,
//! stopped, replaced and cut off. What everybody saw, what the tools wrote down, what the model was asked and how
//! the rows stand in the end is then held against every promise there is (`checks`). A run that did not see enough
//! proves nothing, and fails (`gates`).

mod chance;
mod checks;
mod clock;
mod figures;
mod files;
mod gates;
mod guards;
mod history;
mod http;
mod json;
mod load;
mod model;
mod mutate;
mod nemesis;
mod plan;
mod progress;
mod proxy;
mod record;
mod report;
mod rows;
mod run;
mod told;
mod world;

use anyhow::{Context, Result, bail};
use clap::Parser;
use progress::Progress;
use run::{Outcome, Settings, Until};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};
use world::Db;

/// Tortures holdpoint.
#[derive(Debug, Parser)]
struct Cli {
    /// For how long harm is done
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// What all chance is made of
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On which database
    #[arg(long, value_enum, default_value = "postgres")]
    db: Db,
    /// How many servers, on Postgres
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Whether it would be seen: a run for each of ten planted bugs, with the guards of the database and without
    #[arg(long, conflicts_with_all = ["gentle", "minutes"])]
    mutate: bool,
    /// With --mutate: this bug alone
    #[arg(long, requires = "mutate")]
    bug: Option<String>,
    /// Do no harm: the load alone
    #[arg(long)]
    gentle: bool,
    /// Where everything that was written down is kept [default: a new folder, kept only of a run that failed]
    #[arg(long)]
    keep: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = tokio::select! {
        done = torture(&cli) => done,
        interrupted = interrupted() => interrupted,
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Comes back when somebody wants it to end. Whatever was started ends with the values that are dropped then.
async fn interrupted() -> Result<bool> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    bail!("interrupted")
}

/// Whether all promises were kept, and enough was seen.
async fn torture(cli: &Cli) -> Result<bool> {
    let server = std::env::current_exe()?.with_file_name("holdpoint-torture-server");
    if !server.exists() {
        bail!("{} is not there; `cargo xtask torture` builds it", server.display());
    }
    let folder = Folder::new(cli.keep.as_deref())?;
    let time = Duration::from_secs_f64(cli.minutes * 60.0);
    let mut settings = Settings::usual(cli.db, cli.replicas, cli.seed, time, &server);
    if cli.gentle {
        settings.mix = nemesis::Mix::nothing();
        settings.until = Until::Time;
    }
    if cli.mutate {
        let all_caught = Box::pin(mutate::mutate(&settings, cli.bug.as_deref(), folder.path())).await;
        if !matches!(all_caught, Ok(true)) || cli.keep.is_some() {
            println!("everything is kept in {}", folder.keep().display());
        }
        return all_caught;
    }
    let progress = Progress::new("torture", time);
    let outcome = Box::pin(run::run(&settings, folder.path(), &progress)).await;
    progress.end();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Err(error.context(format!("what there is lies in {}", folder.keep().display()))),
    };
    let Outcome { records, violations, figures } = outcome;
    let missing = if cli.gentle { Vec::new() } else { gates::too_few(&figures, cli.db, settings.minutes()) };
    println!("{}", report::table(&figures, &violations, cli.seed));
    let well = violations.is_empty() && missing.is_empty();
    for what in &missing {
        println!("saw too little: {what}");
    }
    if !violations.is_empty() {
        println!("{}", report::failures(&records, &violations));
    }
    if !well || cli.keep.is_some() {
        println!("everything is kept in {}", folder.keep().display());
    }
    Ok(well)
}

/// Where a run writes. It goes with this value, unless somebody named it or wants it kept.
enum Folder {
    Named(PathBuf),
    Own(TempDir),
}

impl Folder {
    fn new(named: Option<&Path>) -> Result<Self> {
        Ok(match named {
            Some(path) => {
                std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
                // What an earlier run wrote down would be judged too.
                if path.read_dir()?.next().is_some() {
                    bail!("--keep: {} is not empty", path.display());
                }
                Self::Named(path.canonicalize()?)
            }
            // Not /tmp, which may be in memory.
            None => Self::Own(tempfile::Builder::new().prefix("holdpoint-torture.").tempdir_in("/var/tmp")?),
        })
    }

    fn path(&self) -> &Path {
        match self {
            Self::Named(path) => path,
            Self::Own(folder) => folder.path(),
        }
    }

    fn keep(self) -> PathBuf {
        match self {
            Self::Named(path) => path,
            Self::Own(folder) => folder.keep(),
        }
    }
}
