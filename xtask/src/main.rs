//! The project's own commands: `cargo xtask help` lists them, `cargo xtask test` is what CI runs.
//!
//! It depends on next to nothing, because a fresh machine builds it before anything else can start.

mod bench;
mod bugs;
mod clients;
mod docs;
mod features;
mod lanes;
mod layout;
mod openapi;
mod page_types;
mod process;
mod programs;
mod schemathesis;
mod server;
mod shards;
mod steps;
mod suite;
mod tooling;
mod torture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let root = workspace_root()?;
    let Some((command, rest)) = args.split_first() else {
        print_help();
        return Ok(());
    };
    match command.as_str() {
        "help" | "-h" | "--help" => print_help(),
        "test" => {
            no_more_arguments(command, rest)?;
            shards::ci(&root, &[])?;
        }
        "ci" => shards::ci(&root, rest)?,
        "t0" | "t1" | "t2" => {
            no_more_arguments(command, rest)?;
            match command.as_str() {
                "t0" => lanes::t0(&root)?,
                "t1" => lanes::t1(&root)?,
                _ => lanes::t2(&root)?,
            }
        }
        "check" => {
            no_more_arguments(command, rest)?;
            steps::check(&root)?;
        }
        "openapi" => {
            no_more_arguments(command, rest)?;
            openapi::write(&root)?;
            page_types::write(&root)?;
        }
        "bench" => bench::bench(&root, rest)?,
        name => match steps::find(name) {
            Some(step) => step.run(&root, rest)?,
            None => bail!("no command `{name}`; `cargo xtask help` lists them"),
        },
    }
    Ok(())
}

fn print_help() {
    println!("cargo xtask <command>\n");
    println!("  {:<12} the tests of the pure crates: seconds", "t0");
    println!("  {:<12} t0, and the core of the tests from outside on SQLite: a minute", "t1");
    println!("  {:<12} t0, and all tests from outside on SQLite: minutes", "t2");
    println!("  {:<12} every step below, two at a time; --shard NAME: some of them", "ci");
    println!("  {:<12} the same as ci", "test");
    for step in steps::STEPS {
        println!("  {:<12}   {}", step.command, step.summary);
    }
    println!("  {:<12} the steps that take under two minutes after a first build", "check");
    println!(
        "  {:<12} write the documents of openapi/ from the code, and the types of packages/page",
        "openapi"
    );
    println!(
        "  {:<12} measure the server beside floors and the AI SDK; --quick, --repeats N, --criterion",
        "bench"
    );
    println!("  {:<12} this list", "help");
}

/// An argument that is silently dropped looks like one that worked.
fn no_more_arguments(command: &str, rest: &[String]) -> Result<()> {
    match rest.first() {
        Some(extra) => bail!("`cargo xtask {command}` takes no argument, got `{extra}`"),
        None => Ok(()),
    }
}

/// Found from the manifest, so that the commands work from any directory of the checkout.
fn workspace_root() -> Result<PathBuf> {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().map(Path::to_path_buf).context("xtask lies outside a workspace")
}
