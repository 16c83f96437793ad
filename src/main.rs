//! The server's command line.

use anyhow::Context;
use clap::{Parser, Subcommand};
use holdpoint::app::{self, App};
use holdpoint::config::{Config, Flags, Log, LogFormat};
use std::io::IsTerminal;
use std::path::PathBuf;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

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
    log(&config.log)?;
    if matches!(cli.command, Some(Command::Migrate)) {
        app::migrate(&config).await?;
        println!("the schema is up to date");
        return Ok(());
    }
    app::open_many_files(&config);
    let tools = app::demo_tools(&config)?;
    let model = app::configured_model(&config)?;
    let bind = config.server.bind;
    // Building puts in order what an earlier process left behind. One that has the address is no earlier one.
    let listener = TcpListener::bind(bind).await.with_context(|| format!("server.bind: {bind}"))?;
    let app = App::build(config, tools, vec![model]).await?;
    println!("holdpoint listens on http://{}", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping");
    };
    app.serve(listener, stop).await?;
    Ok(())
}

fn log(settings: &Log) -> anyhow::Result<()> {
    let level = settings.level.as_deref().unwrap_or("info");
    let filter = EnvFilter::try_new(level).with_context(|| format!("log.level: {level:?}"))?;
    let terminal = std::io::stderr().is_terminal();
    let format = settings.format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => lines.with_ansi(terminal).init(),
        LogFormat::Json => lines.json().with_span_list(false).init(),
    }
    Ok(())
}
