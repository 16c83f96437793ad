//! The server under test: the real server with tools that record their work, and with faults chosen on the
//! command line.

mod ledger;
mod tools;

use anyhow::{Context, bail};
use clap::Parser;
use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags};
use holdpoint::faults::{Bug, Chosen, Fault};
use holdpoint::handlers::Deferred;
use holdpoint::telemetry;
use ledger::Ledger;
use std::path::PathBuf;
use std::pin::pin;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// A holdpoint server with faults on purpose.
#[derive(Debug, Parser)]
struct Cli {
    /// The configuration file
    #[arg(long)]
    config: PathBuf,
    /// The file in which the tools record their work; several processes may share the file
    #[arg(long)]
    ledger: PathBuf,
    /// A fault at a failpoint, such as `after:tool.started=die@0.02`
    #[arg(long)]
    fault: Vec<Fault>,
    /// The seed of the probabilities of faults
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The file that records each hit of a failpoint; several processes may share the file
    #[arg(long)]
    hits: Option<PathBuf>,
    /// The planted bug of this server
    #[arg(long, value_enum)]
    bug: Option<Bug>,
    /// A tool that this server lacks
    #[arg(long)]
    without: Vec<String>,
    /// A tool whose schema has one more field in this server
    #[arg(long)]
    changed: Vec<String>,
    /// How far the clock of this process is ahead
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    skew: i64,
    /// Abort when stdin closes, because the parent process is gone then
    #[arg(long)]
    tethered: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if cli.tethered {
        std::thread::spawn(|| {
            let _gone = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::abort();
        });
    }
    let hits = cli.hits.as_deref().map(Chosen::hits_in).transpose().context("--hits")?;
    let skew_micros = cli.skew.saturating_mul(1_000_000);
    let chosen = Chosen { faults: cli.fault, seed: cli.seed, hits, bug: cli.bug, skew_micros };
    if !chosen.install() {
        bail!("the faults are already installed");
    }
    let flags = Flags { file: Some(cli.config), ..Flags::default() };
    let config = Config::load(&flags).context("configuration")?;
    let telemetry = telemetry::begin(&config.log).map_err(anyhow::Error::from_boxed).context("log")?;
    let mut stop = pin!(asked_to_stop()?);
    app::open_many_files(&config);
    let model = app::configured_model(&config)?;
    let bind = config.server.bind;
    let listener = TcpListener::bind(bind).await.with_context(|| format!("server.bind: {bind}"))?;
    let tools = tools::registry(&Ledger::at(&cli.ledger, &config), &cli.without, &cli.changed)?;
    let app = tokio::select! {
        built = App::builder(config).tools(tools).model(model).handler(Deferred).build() => built?,
        () = &mut stop => return Ok(()),
    };
    println!("holdpoint listens on http://{}", listener.local_addr()?);
    let served = app.serve(listener, stop).await;
    telemetry.end().await;
    Ok(served?)
}

/// Returns a future that completes when the process receives SIGTERM.
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        terminate.recv().await;
    })
}
