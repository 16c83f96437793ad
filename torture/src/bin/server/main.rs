//! The server under test: the real server with tools that record their work, and with faults chosen on the
//! command line.

mod clock;
mod faults;
mod tools;

use anyhow::{Context, bail};
use clap::Parser;
use clock::SkewedClock;
use faults::{Fault, Faults};
use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags};
use holdpoint::handlers::Deferred;
use holdpoint::telemetry;
use holdpoint_torture::ledger::Ledger;
use secrecy::ExposeSecret;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
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
    /// A tool that this server lacks
    #[arg(long)]
    without: Vec<String>,
    /// A tool whose schema has one more field in this server
    #[arg(long)]
    changed: Vec<String>,
    /// How far the clock of this process is ahead
    #[arg(long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true)]
    skew: i64,
    /// Abort when stdin closes, because the parent process has ended then
    #[arg(long)]
    tethered: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if cli.tethered {
        std::thread::spawn(|| {
            let _closed = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            std::process::abort();
        });
    }
    let hits = cli.hits.as_deref().map(faults::hits_in).transpose().context("--hits")?;
    let faults = Arc::new(Faults { faults: cli.fault, seed: cli.seed, hits });
    let clock = Arc::new(SkewedClock(cli.skew.saturating_mul(1_000_000)));
    let flags = Flags { file: Some(cli.config), ..Flags::default() };
    let config = Config::load(&flags).context("configuration")?;
    let telemetry = telemetry::begin(&config.log).map_err(anyhow::Error::from_boxed).context("log")?;
    let mut stop = pin!(stop_signal()?);
    app::open_many_files(&config);
    let model = app::configured_model(&config)?;
    let bind = config.server.bind;
    if !bind.ip().is_loopback() {
        bail!("server.bind: a server with faults serves loopback only");
    }
    let listener = TcpListener::bind(bind).await.with_context(|| format!("server.bind: {bind}"))?;
    let ledger = Ledger::at(&cli.ledger, config.database.url.expose_secret());
    let mut tools = app::configured_tools(&config)?;
    tools::register(&mut tools, &ledger, &faults, &cli.without, &cli.changed)?;
    let builder = App::builder(config).tools(tools).model(model).handler(Deferred);
    let app = tokio::select! {
        built = builder.clock(clock).commit_hook(faults).build() => built?,
        () = &mut stop => return Ok(()),
    };
    println!("holdpoint listens on http://{}", listener.local_addr()?);
    let served = app.serve(listener, stop).await;
    telemetry.end().await;
    Ok(served?)
}

/// Returns a future that completes when the process receives SIGTERM.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        terminate.recv().await;
    })
}
