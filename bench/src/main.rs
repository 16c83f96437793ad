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
use tokio::runtime::{Builder, Runtime};

#[derive(Parser)]
#[command(about = "Measures holdpoint beside floors and a server on AI SDK 7, and prints the ratios")]
struct Cli {
    /// Short steps, and one repeat: at most five minutes
    #[arg(long)]
    quick: bool,
    /// How often each server is measured [default: 3, or 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
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
            one_thread()?.block_on(async {
                tokio::select! {
                    ended = run::run(cli.quick, repeats) => ended,
                    _ = tokio::signal::ctrl_c() => bail!("interrupted"),
                }
            })
        }
    }
}

fn one_thread() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
