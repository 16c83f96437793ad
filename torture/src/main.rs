//! Breaks running holdpoint servers in many ways, and checks that they keep their promises.
//!
//! The load chats with servers of one build on one database, decides calls, reads calls and tries foreign
//! calls. At the same time the nemesis kills, stops and replaces the servers and cuts their connections. At
//! the end, the checks compare the answers of the servers, the ledger of the tools, the requests to the model
//! and the final rows with every promise (`checks`). A run that saw too little proves nothing and fails
//! (`gates`).

mod checks;
mod clock;
mod figures;
mod files;
mod gates;
mod guards;
mod history;
mod json;
mod load;
mod mix;
mod model;
mod mutate;
mod nemesis;
mod plan;
mod progress;
mod proxy;
mod random;
mod record;
mod report;
mod rows;
mod run;
mod stream;
mod world;

use anyhow::{Context, Result, bail};
use clap::Parser;
use holdpoint_torture::http;
use mix::Db;
use progress::Progress;
use run::{HarmEnd, Outcome, Settings};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// Tortures holdpoint servers and checks their promises.
#[derive(Debug, Parser)]
struct Cli {
    /// The time of the harm
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// The seed of all random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The database
    #[arg(long, value_enum, default_value = "postgres")]
    db: Db,
    /// The number of servers, on Postgres
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Test the checks: build and run a server with each planted bug, with the guards of the database and
    /// without
    #[arg(long, conflicts_with_all = ["gentle", "minutes"])]
    mutate: bool,
    /// With --mutate: only this bug
    #[arg(long, requires = "mutate")]
    bug: Option<String>,
    /// Do no harm: only the load
    #[arg(long)]
    gentle: bool,
    /// The folder of the records [default: a new folder, kept only after a failed run]
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

/// Completes with an error on SIGINT or SIGTERM. The processes of the run end when their values are dropped.
async fn interrupted() -> Result<bool> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    bail!("interrupted")
}

/// Returns whether the servers kept all promises and the run saw enough.
async fn torture(cli: &Cli) -> Result<bool> {
    let program = std::env::current_exe()?;
    let programs = program.parent().context("this program is in a folder")?;
    let folder = Folder::new(cli.keep.as_deref())?;
    let time = Duration::from_secs_f64(cli.minutes * 60.0);
    let mut settings = Settings::usual(cli.db, cli.replicas, cli.seed, time, programs);
    for program in [&settings.server, &settings.remote] {
        if !program.exists() {
            bail!("{} is missing; `cargo xtask torture` builds it", program.display());
        }
    }
    if cli.gentle {
        settings.mix = mix::Mix::nothing();
        settings.until = HarmEnd::Time;
    }
    if cli.mutate {
        let all_caught = Box::pin(mutate::mutate(&settings, cli.bug.as_deref(), folder.path())).await;
        if !matches!(all_caught, Ok(true)) || cli.keep.is_some() {
            println!("the records are kept in {}", folder.keep().display());
        }
        return all_caught;
    }
    let progress = Progress::new("torture", time);
    let outcome = Box::pin(run::run(&settings, folder.path(), &progress)).await;
    progress.end();
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return Err(error.context(format!("the records are in {}", folder.keep().display()))),
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
        println!("the records are kept in {}", folder.keep().display());
    }
    Ok(well)
}

/// The folder of a run. Dropping the value removes the folder, unless it was named on the command line or
/// kept.
enum Folder {
    Named(PathBuf),
    Own(TempDir),
}

impl Folder {
    fn new(named: Option<&Path>) -> Result<Self> {
        Ok(match named {
            Some(path) => {
                std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
                // The checks would read the records of an earlier run too.
                if path.read_dir()?.next().is_some() {
                    bail!("--keep: {} is not empty", path.display());
                }
                Self::Named(path.canonicalize()?)
            }
            // Not in /tmp, which may be in memory.
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
