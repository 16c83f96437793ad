//! The command line: the server, its operator, and an approver at a terminal.

use anyhow::{Context, bail};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use holdpoint::app::{
    self, App, CallLine, Fenced, FieldChange, Finding, Purged, ToolLine, WAITING_STATES, WebhookLine,
};
use holdpoint::config::{Client, ClientFlags, Config, Flags};
use holdpoint::handlers::Deferred;
use holdpoint::telemetry;
use holdpoint_terminal::{self as terminal, Failure, FoundOutcome, List, Resolve};
use humantime_serde::re::humantime;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;
use tikv_jemallocator::Jemalloc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// The allocator of glibc is slow after many streams at once.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

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
    /// List, show, decide and watch held calls, and record the outcome of an interrupted call
    Approvals(ApprovalsArgs),
    /// List the tools of MCP servers, and accept their definitions
    #[command(subcommand)]
    Tools(Tools),
    /// Show how the delivery of events to webhooks and recipients goes, and enable one
    #[command(subcommand)]
    Webhooks(Webhooks),
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
    /// Print the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the man page, or write the man pages of all commands into a folder
    Man {
        /// The folder
        folder: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct ApprovalsArgs {
    /// The address of a server [default: HOLDPOINT_URL]
    #[arg(long, global = true)]
    url: Option<String>,
    /// A file with the access token for the server [default: HOLDPOINT_TOKEN_FILE, or the token in HOLDPOINT_TOKEN]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(subcommand)]
    command: terminal::Command,
}

#[derive(Debug, Subcommand)]
enum Tools {
    /// List the tools, and how the definitions that are not accepted differ from the accepted ones
    List,
    /// Accept the definition of a tool as its server lists it, so that calls run again where the policy lets them
    Accept {
        /// Name of the tool in holdpoint
        tool: String,
        /// Hash of the definition that you have read
        #[arg(long)]
        hash: String,
        /// Name of the operator, for the audit trail
        #[arg(long, value_name = "NAME")]
        by: String,
    },
}

#[derive(Debug, Subcommand)]
enum Webhooks {
    /// List the webhooks and recipients of all tenants
    List,
    /// Forget the failed attempts of a webhook or a recipient. The servers continue with the first event that was not delivered
    Enable {
        /// Name of the webhook or the recipient
        name: String,
    },
}

/// The exit code of a process that a second signal ended: 128 and the number of SIGINT.
const EXIT_INTERRUPTED: i32 = 130;

/// The number of calls that `approvals list` reads from the database by default.
const CALLS_LISTED: u32 = 50;

/// The time after which a command shows its progress.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Prints an error with its causes. Prints no backtrace, because the reader is an operator.
#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = Box::pin(run(Cli::parse())).await else { return ExitCode::SUCCESS };
    let code = error.downcast_ref().map_or(1, Failure::exit_code);
    if code != 0 {
        eprintln!("Error: {error:#}");
    }
    ExitCode::from(code)
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    match &cli.command {
        Some(Command::Openapi { full }) => {
            return print(format!("{}\n", app::document(*full).await?).as_bytes());
        }
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "holdpoint", &mut script);
            return print(&script);
        }
        Some(Command::Man { folder }) => return man(folder.as_deref()),
        Some(Command::Approvals(ApprovalsArgs { url, token_file, command })) => {
            let flags = ClientFlags { url: url.clone(), token_file: token_file.clone() };
            let client = Client::load(flags).map_err(Failure::from)?;
            match command {
                // `--database-url` names the database in spite of the variable.
                terminal::Command::List(list)
                    if url.is_none() && (!client.has_url() || cli.database_url.is_some()) =>
                {
                    list.check_without_server()?;
                }
                // So does `--by`, the name of an operator without a token.
                terminal::Command::Resolve(Resolve { by: Some(_), .. }) if url.is_none() => {}
                terminal::Command::Resolve(Resolve { by: None, .. }) if !client.has_url() => {
                    let expected =
                        "--by or --url: expected the name of an operator, or the address of a server";
                    return Err(Failure::Usage(expected.to_owned()).into());
                }
                command => return Ok(command.run(client).await?),
            }
        }
        _ => {}
    }
    let flags = Flags { file: cli.config, bind: cli.bind, database_url: cli.database_url };
    let config = Config::load(&flags).context("configuration")?;
    match &cli.command {
        Some(Command::Config) => {
            print!("{}", config.in_force()?);
            return Ok(());
        }
        Some(Command::Approvals(args)) => {
            return match &args.command {
                terminal::Command::List(list) => list_database(&config, list).await,
                terminal::Command::Resolve(Resolve {
                    tool_call_id, by: Some(by), finding, reason, ..
                }) => resolve(&config, tool_call_id, by, finding, reason.as_deref()).await,
                _ => bail!("the command needs a server"),
            };
        }
        Some(Command::Tools(Tools::List)) => return list_tools(&config).await,
        Some(Command::Tools(Tools::Accept { tool, hash, by })) => {
            return accept(&config, tool, hash, by).await;
        }
        Some(Command::Webhooks(Webhooks::List)) => return list_webhooks(&config).await,
        Some(Command::Webhooks(Webhooks::Enable { name })) => {
            app::operator(&config).await?.enable_webhook(name).await?;
            println!("{name} is enabled; its delivery continues within 5 s");
            return Ok(());
        }
        Some(Command::Fence { by }) => return fence(&config, by).await,
        Some(Command::Purge { older_than }) => return purge(&config, *older_than).await,
        Some(
            Command::Serve
            | Command::Migrate
            | Command::Openapi { .. }
            | Command::Completions { .. }
            | Command::Man { .. },
        )
        | None => {}
    }
    let telemetry = telemetry::begin(&config.log).map_err(anyhow::Error::from_boxed).context("log")?;
    let mut stop = pin!(stop_signal()?);
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
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
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

/// Lists the calls of all users, as the database has them.
async fn list_database(config: &Config, list: &List) -> anyhow::Result<()> {
    let limit = list.limit.unwrap_or(CALLS_LISTED);
    let operator = app::operator(config).await?;
    let named: Vec<&str> = list.state.iter().map(String::as_str).collect();
    let states = if named.is_empty() { &WAITING_STATES[..] } else { &named };
    let (calls, more) = operator.calls(states, limit.into()).await?;
    let head = ["TOOL CALL", "TOOL", "STATE", "TENANT", "USER", "SINCE"];
    print_table(head, calls.iter().map(CallLine::cells))?;
    if more {
        eprintln!("there are more than {limit} calls; use a larger --limit to see them");
    }
    Ok(())
}

async fn list_webhooks(config: &Config) -> anyhow::Result<()> {
    let webhooks = app::operator(config).await?.webhooks().await?;
    let head =
        ["NAME", "CHANNEL", "STATE", "TENANT", "CURSOR", "REFUSED", "FAILURES", "LAST", "FAILING SINCE"];
    print_table(head, webhooks.iter().map(WebhookLine::cells))
}

/// Prints columns as wide as their widest cells.
fn print_table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> anyhow::Result<()> {
    let head = head.map(str::to_owned);
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).map(Vec::from).collect();
    print(terminal::table(&lines).as_bytes())
}

async fn list_tools(config: &Config) -> anyhow::Result<()> {
    let tools = app::operator(config).await?.tools().await?;
    let head = ["TOOL", "DEFINITION", "ACCEPTED BY", "ACCEPTED", "HASH"];
    print_table(head, tools.iter().map(ToolLine::cells))?;
    let mut out = Vec::new();
    for ToolLine { tool, changes, .. } in tools.iter().filter(|tool| !tool.changes.is_empty()) {
        for FieldChange { field, accepted, current } in changes {
            writeln!(out, "\n{tool}, {field}:")?;
            for (sign, text) in [('-', accepted), ('+', current)] {
                for line in text.iter().flat_map(|text| text.lines()) {
                    writeln!(out, "{sign} {line}")?;
                }
            }
        }
    }
    print(&out)
}

async fn accept(config: &Config, tool: &str, hash: &str, by: &str) -> anyhow::Result<()> {
    app::operator(config).await?.accept(tool, hash, by).await?;
    println!("the definition of {tool} is accepted; servers learn it within seconds");
    Ok(())
}

/// Prints the man page, or writes one page for each command.
fn man(folder: Option<&Path>) -> anyhow::Result<()> {
    let command = Cli::command();
    match folder {
        None => {
            let mut page = Vec::new();
            Man::new(command).render(&mut page)?;
            print(&page)
        }
        Some(folder) => clap_mangen::generate_to(command, folder)
            .with_context(|| format!("the man pages: {}", folder.display())),
    }
}

/// Prints a text. A reader that has closed its end is no failure.
fn print(text: &[u8]) -> anyhow::Result<()> {
    Ok(std::io::stdout().write_all(text).map_err(Failure::from)?)
}

async fn resolve(
    config: &Config,
    tool_call_id: &str,
    by: &str,
    found: &FoundOutcome,
    reason: Option<&str>,
) -> anyhow::Result<()> {
    let finding = match found {
        FoundOutcome { failed: Some(why), .. } => Finding::Failed(why.clone()),
        FoundOutcome { succeeded, .. } => Finding::Succeeded(succeeded.clone().unwrap_or_default()),
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
    let Fenced { pending, approved, interrupted, turns, grants, sign_ins } = fenced;
    println!("{pending} calls that waited for a person are cancelled");
    println!("{approved} calls that were approved and not started are cancelled");
    println!("{interrupted} calls that were started are interrupted");
    println!("{turns} turns that were under way are closed");
    println!("{grants} remembered approvals are revoked");
    println!("{sign_ins} sign-ins have ended");
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
