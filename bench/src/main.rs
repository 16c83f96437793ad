//! Measures holdpoint beside floors, which only forward, and a server on AI SDK 7: `cargo xtask bench`.
//! `docs/performance.md` describes the method.
//!
//! One program has all roles: the clients, which also drive the run, and as processes of their own the fake model, the
//! floors and holdpoint.

mod client;
mod floor;
mod http;
mod load;
mod machine;
mod plan;
mod postgres;
mod run;
mod server;
mod table;
mod target;
mod upstream;
mod wire;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use floor::Floor;
use plan::Step;
use target::TARGETS;
use tikv_jemallocator::Jemalloc;
use tokio::runtime::{Builder, Runtime};

/// The allocator of the program `holdpoint`. The floors have it too.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

#[derive(Parser)]
#[command(about = "Measures holdpoint beside floors and a server on AI SDK 7, and prints the ratios")]
struct Cli {
    /// Short steps, and one repeat: at most five minutes
    #[arg(long)]
    quick: bool,
    /// How often each server is measured [default: 3, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Measures only this server; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Runs only this step and the warm-ups; may be repeated [default: all]
    #[arg(long, value_name = "NAME")]
    step: Vec<String>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// The role of a process that the run starts.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Model {
        #[arg(long)]
        port: u16,
    },
    #[command(hide = true)]
    Floor {
        floor: Floor,
        #[arg(long)]
        port: u16,
        #[arg(long)]
        model: String,
    },
    #[command(hide = true)]
    Holdpoint {
        #[arg(long)]
        port: u16,
        #[arg(long)]
        model: String,
        #[arg(long)]
        database: String,
    },
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.role {
        Some(Role::Model { port }) => one_thread()?.block_on(upstream::run(port)),
        Some(Role::Floor { floor, port, model }) => one_thread()?.block_on(floor::run(port, &model, floor)),
        // As the program `holdpoint`: the runtime has a thread for each core that the process may use.
        Some(Role::Holdpoint { port, model, database }) => {
            Runtime::new()?.block_on(server::run(port, &model, &database))
        }
        None => {
            let repeats = cli.repeats.unwrap_or(if cli.quick { 1 } else { 3 });
            let targets = named("server", &TARGETS, |target| target.name, &cli.server)?;
            let steps = plan::steps(cli.quick);
            let warm_up = |step: &&Step| [plan::WARM_UP, plan::WARM_UP_HOLDS].contains(&step.name);
            let chosen = named("step", &steps, |step| step.name, &cli.step)?;
            let steps =
                steps.iter().filter(|step| warm_up(step) || chosen.iter().any(|one| one.name == step.name));
            let steps = steps.copied().collect();
            one_thread()?.block_on(async {
                tokio::select! {
                    ended = run::run(cli.quick, steps, &targets, repeats) => ended,
                    _ = tokio::signal::ctrl_c() => bail!("interrupted"),
                }
            })
        }
    }
}

/// Returns the items with these names, or all items if there are no names.
fn named<'a, T>(
    what: &str,
    all: &'a [T],
    name_of: impl Fn(&T) -> &'static str,
    names: &[String],
) -> Result<Vec<&'a T>> {
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|item| name_of(item) == name.as_str())) {
        let known: Vec<_> = all.iter().map(name_of).collect();
        bail!("there is no {what} `{unknown}`; expected one of: {}", known.join("; "));
    }
    Ok(all.iter().filter(|item| names.is_empty() || names.iter().any(|name| name == name_of(item))).collect())
}

fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
