//! The server's command line.

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags};
use holdpoint::telemetry;
use std::path::PathBuf;
use std::pin::pin;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// A chat backend that streams to the AI SDK and holds dangerous tool calls for a human.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// The configuration file [default: holdpoint.toml, where there is one]
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

#[derive(Debug, Clone, Copy, Subcommand)]
enum Command {
    /// Serve (the default)
    Serve,
    /// Bring the database's schema up to date
    Migrate,
    /// Print the OpenAPI document
    Openapi,
    /// Print the configuration in force, as a file; secrets are masked
    Config,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if matches!(cli.command, Some(Command::Openapi)) {
        println!("{}", app::document().await?);
        return Ok(());
    }
    let flags = Flags { file: cli.config, bind: cli.bind, database_url: cli.database_url };
    let config = Config::load(&flags).context("configuration")?;
    if matches!(cli.command, Some(Command::Config)) {
        print!("{}", config.in_force()?);
        return Ok(());
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
    let tools = app::demo_tools(&config)?;
    let model = app::configured_model(&config)?;
    let bind = config.server.bind;
    // Building puts in order what an earlier process left behind. One that has the address is no earlier one.
    let listener = TcpListener::bind(bind).await.with_context(|| format!("server.bind: {bind}"))?;
    let app = tokio::select! {
        built = App::build(config, tools, vec![model]) => built?,
        () = &mut stop => return Ok(()),
    };
    println!("holdpoint listens on http://{}", listener.local_addr()?);
    let served = app.serve(listener, stop).await;
    telemetry.end().await;
    Ok(served?)
}

/// Comes back once somebody asks the process to stop. It listens from the first moment on: as the first process of a
/// container it would not be ended by a signal that nobody listens to.
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping");
    })
}
