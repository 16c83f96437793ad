//! The remote tools under test: an MCP server, the service of an HTTP tool, and a worker. Each process writes its work
//! to the ledger, and ends when its stdin closes.

mod mcp;
mod service;
mod worker;

use anyhow::Result;
use clap::{Parser, Subcommand};
use futures::future::pending;
use holdpoint_torture::http::Request;
use holdpoint_torture::ledger::{Execution, Ledger, Line, Requester};
use holdpoint_torture::work::{ToolEnding, Work, hash, schema};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// A remote tool that writes down its work.
#[derive(Debug, Parser)]
struct Cli {
    /// The file in which the tools record their work
    #[arg(long)]
    ledger: PathBuf,
    /// The database with the rows of the calls
    #[arg(long)]
    database: String,
    /// The name of the tool, as the model calls it
    #[arg(long, required = true)]
    tool: Vec<String>,
    #[command(subcommand)]
    part: RemotePart,
}

#[derive(Debug, Subcommand)]
enum RemotePart {
    /// An MCP server on stdin and stdout
    Mcp,
    /// The service of an HTTP tool
    Service {
        /// The address on which it listens
        #[arg(long)]
        listen: SocketAddr,
        /// The secret that signs its reports
        #[arg(long)]
        secret: String,
    },
    /// A worker
    Worker {
        /// The address of the servers
        #[arg(long)]
        server: SocketAddr,
        /// The token of the worker
        #[arg(long)]
        token: String,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    let Cli { ledger, database, tool, part } = Cli::parse();
    let bench = Bench(Ledger::at(&ledger, &database));
    match part {
        RemotePart::Mcp => mcp::serve(bench, tool).await,
        RemotePart::Service { listen, secret } => {
            end_with_stdin();
            service::serve(bench, listen, &secret).await
        }
        RemotePart::Worker { server, token } => {
            end_with_stdin();
            worker::work(Arc::new(worker::Worker { bench, tools: tool, server, token })).await
        }
    }
}

/// Ends the process when its stdin closes, because the parent process has ended then.
fn end_with_stdin() {
    std::thread::spawn(|| {
        let _closed = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::abort();
    });
}

/// The number of tries to report an outcome.
const TRIES: usize = 25;
/// The pause before the next try of a request.
const PAUSE: Duration = Duration::from_millis(300);

/// The end of an execution: its output, or the reason of its failure.
type Outcome = Result<Value, String>;

/// The place where calls are executed.
#[derive(Debug, Clone)]
struct Bench(Ledger);

/// One execution of a call.
#[derive(Debug)]
struct Job {
    tool: String,
    /// The user of the call, if the request names the user and the call.
    requester: Option<Requester>,
    work: Work,
    execution: Execution,
}

impl Job {
    /// An execution of a call with these inputs. `call` is empty and `nth` is a number if the request names no call.
    fn new(tool: &str, call: &str, nth: Option<u64>, attempt: u32, input: &Value) -> Result<Self> {
        let work = serde_json::from_value(input.clone())?;
        // An MCP server knows its definition, and not what the server stores of it.
        let schema_hash = if nth.is_some() { String::new() } else { hash(&schema(false)) };
        let args_sha256 = hash(input);
        let execution =
            Execution { call: call.to_owned(), nth, attempt, args_sha256, schema_hash, seen: None };
        Ok(Self { tool: tool.to_owned(), requester: None, work, execution })
    }

    fn line<'a>(&'a self, what: &'a str, outcome: Option<&'a str>) -> Line<'a> {
        let (requester, execution) = (self.requester.as_ref(), Some(&self.execution));
        Line { what, key: &self.execution.call, tool: &self.tool, requester, execution, outcome }
    }
}

impl Bench {
    /// Executes a call. `stop` completes when the execution is asked to stop before its effect.
    async fn execute(&self, job: &mut Job, stop: impl Future<Output = ()>) -> Result<Outcome> {
        let Bench(ledger) = self;
        if !job.execution.call.is_empty() {
            job.execution.seen = ledger.read_row(&job.execution.call).await;
        }
        ledger.write(&job.line("start", None)).await?;
        let Work { n, ms, then } = job.work;
        tokio::select! {
            () = sleep(Duration::from_millis(ms)) => {}
            () = stop => {
                ledger.write(&job.line("end", Some("fail"))).await?;
                return Ok(Err(format!("{n} was stopped")));
            }
        }
        ledger.write(&job.line("effect", None)).await?;
        match then {
            ToolEnding::Ok | ToolEnding::Later => {
                ledger.write(&job.line("end", Some("ok"))).await?;
                Ok(Ok(json!({ "n": n })))
            }
            ToolEnding::Fail => {
                ledger.write(&job.line("end", Some("fail"))).await?;
                Ok(Err(format!("{n} was refused")))
            }
            ToolEnding::Crash => std::process::abort(),
            ToolEnding::Hang => pending().await,
        }
    }

    /// Reports an outcome to the servers at this address until one of them acknowledges or refuses the report, and
    /// repeats an acknowledged report once.
    async fn report(
        &self,
        job: &Job,
        outcome: &Outcome,
        server: SocketAddr,
        request: impl Fn() -> Request + Send,
    ) -> Result<()> {
        let mut acknowledged = false;
        for _ in 0..TRIES {
            let response = request().send(server).await;
            let report = match response.ok().filter(|response| response.cut.is_none()).map(|it| it.status) {
                Some(200) if acknowledged => break,
                Some(200) => {
                    if outcome.is_ok() {
                        "ok"
                    } else {
                        "fail"
                    }
                }
                Some(409) if acknowledged => "refused",
                Some(409) => break,
                // A server without the tool, or in trouble.
                Some(_) | None => {
                    sleep(PAUSE).await;
                    continue;
                }
            };
            self.0.write(&job.line("reported", Some(report))).await?;
            if acknowledged {
                break;
            }
            acknowledged = true;
        }
        Ok(())
    }
}
