//! The command line of the server.

use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};
use holdpoint::app::{self, App, CALL_STATES, CallLine, Fenced, Finding, Purged, WAITING_STATES};
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::Deferred;
use holdpoint::telemetry;
use humantime_serde::re::humantime;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// A chat backend that streams to the AI SDK and holds dangerous tool calls for a human.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// The configuration file [default: holdpoint.toml, if it exists]
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// server.bind: the address to listen on
    #[arg(long, global = true)]
    bind: Option<String>,
    /// database.url: sqlite:// and a file, or postgres://
    #[arg(long, global = true)]
    database_url: Option<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server (the default)
    Serve,
    /// Bring the schema of the database up to date
    Migrate,
    /// Print the OpenAPI document
    Openapi {
        /// Also describe the streams that pages read, which generators of clients cannot type
        #[arg(long)]
        full: bool,
    },
    /// Print the configuration in force as a file; secrets are masked
    Config,
    /// List calls, and record the outcome of an interrupted call
    #[command(subcommand)]
    Approvals(Approvals),
    /// After a restore or a failover that lost commits: close all open work, so that nothing is rerun
    ///
    /// Run the command before a server uses the database. Open work may have happened in the lost time. The
    /// command cancels calls that are pending, or approved and never started. It interrupts calls that were
    /// started, closes open turns and revokes grants. The command can be interrupted and run again.
    Fence {
        /// Name of the operator, for the audit trail
        #[arg(long, value_name = "NAME")]
        by: String,
    },
    /// Erase the content of deleted threads: texts, titles, and the inputs and results of calls
    ///
    /// The rows stay as evidence: ids, states, decisions with their reasons, events, hashes. The erased
    /// content cannot be restored. Servers may be running. The command can be interrupted and run again.
    Purge {
        /// Only threads that were deleted at least this long ago: "30d", "12h"
        #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
        older_than: Duration,
    },
}

#[derive(Debug, Subcommand)]
enum Approvals {
    /// List calls, newest first
    List {
        /// Only calls in these states [default: pending, interrupted]
        #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = PossibleValuesParser::new(CALL_STATES))]
        state: Vec<String>,
        /// Maximum number of calls
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Record the outcome of an interrupted call. The model reads that an operator established it
    Resolve {
        /// Id of the call
        tool_call_id: String,
        /// Name of the operator, for the audit trail
        #[arg(long, value_name = "NAME")]
        by: String,
        #[command(flatten)]
        finding: Found,
        /// Evidence for the outcome
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Found {
    /// The call took effect; the value is its output, if known
    #[arg(long, value_name = "JSON", num_args = 0..=1, default_missing_value = "null", value_parser = json)]
    succeeded: Option<serde_json::Value>,
    /// The call failed or never ran; the value is the cause
    #[arg(long, value_name = "TEXT")]
    failed: Option<String>,
}

fn json(text: &str) -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_str(text)
}

/// The exit code of a process that a second signal ended: 128 and the number of SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// The time after which a command shows its progress.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Prints an error with its causes. Prints no backtrace, because the reader is an operator.
#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run(Cli::parse())).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    if let Some(Command::Openapi { full }) = cli.command {
        println!("{}", app::document(full).await?);
        return Ok(());
    }
    let flags = Flags { file: cli.config, bind: cli.bind, database_url: cli.database_url };
    let config = Config::load(&flags).context("configuration")?;
    match &cli.command {
        Some(Command::Config) => {
            print!("{}", config.in_force()?);
            return Ok(());
        }
        Some(Command::Approvals(Approvals::List { state, limit })) => {
            return list(&config, state, *limit).await;
        }
        Some(Command::Approvals(Approvals::Resolve { tool_call_id, by, finding, reason })) => {
            return resolve(&config, tool_call_id, by, finding, reason.as_deref()).await;
        }
        Some(Command::Fence { by }) => return fence(&config, by).await,
        Some(Command::Purge { older_than }) => return purge(&config, *older_than).await,
        Some(Command::Serve | Command::Migrate | Command::Openapi { .. }) | None => {}
    }
    let telemetry = telemetry::begin(&config.log).map_err(anyhow::Error::from_boxed).context("log")?;
    let mut stop = pin!(asked_to_stop()?);
    if matches!(cli.command, Some(Command::Migrate)) {
        tokio::select! {
            migrated = app::migrate(&config) => migrated?,
            () = &mut stop => bail!("stopped before the schema was up to date"),
        }
        println!("the schema is up to date");
        return Ok(());
    }
    app::open_many_files(&config);
    let tools = app::configured_tools(&config)?;
    let model = app::configured_model(&config)?;
    let bind = config.server.bind;
    // The listener comes first. `build` recovers the work of an earlier process, and no other process can
    // have this address.
    let listener = TcpListener::bind(bind).await.with_context(|| format!("server.bind: {bind}"))?;
    let url = format!("http://{}", listener.local_addr()?);
    let summary = app::summary(&config, &tools, model.as_ref(), &url);
    let app = tokio::select! {
        built = App::builder(config).tools(tools).model(model).handler(Deferred).build() => built?,
        () = &mut stop => return Ok(()),
    };
    println!("holdpoint listens on {url}\n{summary}");
    let served = app.serve(listener, stop).await;
    telemetry.end().await;
    Ok(served?)
}

/// Completes when the first signal asks the process to stop. A second signal ends the process at once.
///
/// The handlers are installed before anything else, because the first process of a container ignores signals
/// without a handler.
#[expect(
    clippy::disallowed_methods,
    reason = "the process ends with this task, and shutdown must not wait for it"
)]
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut next = async move || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    Ok(async move {
        next().await;
        tracing::info!("stopping; a second signal ends the process at once");
        tokio::spawn(async move {
            next().await;
            eprintln!(
                "stopped at once; interrupted work is recovered at the next start, or by another process"
            );
            std::process::exit(EXIT_INTERRUPTED);
        });
    })
}

async fn list(config: &Config, states: &[String], limit: u32) -> anyhow::Result<()> {
    let operator = app::operator(config).await?;
    let asked: Vec<&str> = states.iter().map(String::as_str).collect();
    let states = if asked.is_empty() { &WAITING_STATES[..] } else { &asked };
    let (calls, more) = operator.calls(states, limit.into()).await?;
    let mut out = std::io::stdout().lock();
    let head = ["TOOL CALL", "TOOL", "STATE", "TENANT", "USER", "SINCE"].map(str::to_owned);
    let lines: Vec<[String; 6]> = std::iter::once(head).chain(calls.iter().map(CallLine::cells)).collect();
    for line in &lines {
        let mut padded = String::new();
        for (column, cell) in line.iter().enumerate() {
            let widest =
                lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
            padded += &format!("{cell:<0$}  ", widest.unwrap_or_default());
        }
        writeln!(out, "{}", padded.trim_end())?;
    }
    drop(out);
    if more {
        eprintln!("there are more than {limit} calls; use a larger --limit to see them");
    }
    Ok(())
}

async fn resolve(
    config: &Config,
    tool_call_id: &str,
    by: &str,
    found: &Found,
    reason: Option<&str>,
) -> anyhow::Result<()> {
    let finding = match found {
        Found { failed: Some(why), .. } => Finding::Failed(why.clone()),
        Found { succeeded, .. } => Finding::Succeeded(succeeded.clone().unwrap_or_default()),
    };
    app::operator(config).await?.resolve(tool_call_id, by, &finding, reason).await?;
    let state = if matches!(finding, Finding::Failed(_)) { "failed" } else { "succeeded" };
    println!("{tool_call_id} is {state}; the model reads that an operator established it");
    Ok(())
}

async fn fence(config: &Config, by: &str) -> anyhow::Result<()> {
    let fencer = app::fencer(config).await?;
    let leases = fencer.leases_held().await?;
    if leases > 0 {
        eprintln!(
            "warning: {leases} turns or tools hold leases: servers may be running; their outcomes arrive late"
        );
    }
    let bar = progress_bar()?;
    let fenced = fencer.fence(by, |done, all| advance(&bar, done, all));
    let fenced = fenced.await.context("not everything is fenced; it is safe to run this again")?;
    bar.finish_and_clear();
    let Fenced { pending, approved, interrupted, turns, grants } = fenced;
    println!("{pending} calls that waited for a person are cancelled");
    println!("{approved} calls that were approved and not begun are cancelled");
    println!("{interrupted} calls that were begun are interrupted");
    println!("{turns} turns that were under way are closed");
    println!("{grants} remembered approvals are revoked");
    Ok(())
}

async fn purge(config: &Config, older_than: Duration) -> anyhow::Result<()> {
    let operator = app::operator(config).await?;
    let bar = progress_bar()?;
    let purged = operator.purge(older_than, |done, all| advance(&bar, done, all));
    let Purged { threads, unfinished } =
        purged.await.context("not everything is purged; it is safe to run this again")?;
    bar.finish_and_clear();
    println!("{threads} deleted threads are purged");
    println!("{unfinished} deleted threads are purged except for what is still under way");
    Ok(())
}

fn progress_bar() -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos} of {len} threads")?);
    Ok(bar)
}

/// Moves the bar. Shows the bar on a terminal after [`SHOW_AFTER`].
fn advance(bar: &ProgressBar, done: u64, all: u64) {
    if bar.is_hidden() && bar.elapsed() > SHOW_AFTER {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    bar.set_length(all);
    bar.set_position(done);
}
