//! The worker.

use crate::{Bench, Job, PAUSE};
use anyhow::{Context, Result};
use futures::future::pending;
use holdpoint_torture::http::{Request, Response};
use holdpoint_torture::ledger::Requester;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The number of calls that the worker executes at once.
const AT_ONCE: usize = 4;
/// How long a claim waits for a call, in seconds.
const WAIT: u64 = 2;
/// The number of renewals after which an execution hangs.
const RENEWALS: usize = 16;

pub(crate) struct Worker {
    pub(crate) bench: Bench,
    pub(crate) tools: Vec<String>,
    pub(crate) server: SocketAddr,
    pub(crate) token: String,
}

struct ClaimedJob {
    job: Job,
    permit: String,
    lease: Duration,
}

/// Claims and executes calls until the process ends.
pub(crate) async fn work(worker: Arc<Worker>) -> Result<()> {
    let mut lanes = JoinSet::new();
    for _ in 0..AT_ONCE {
        let worker = worker.clone();
        lanes.spawn(async move {
            loop {
                match worker.claim().await {
                    Ok(Some(claimed)) => worker.execute(claimed).await?,
                    Ok(None) => {}
                    Err(_) => sleep(PAUSE).await,
                }
            }
        });
    }
    lanes.join_next().await.context("a lane")??
}

impl Worker {
    async fn post(&self, path: &str, body: Value) -> Result<Response> {
        let response = Request::post(path, &self.token, Some(body)).send(self.server).await?;
        match response.cut {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => Ok(response),
        }
    }

    async fn claim(&self) -> Result<Option<ClaimedJob>> {
        let claimed = self.post("/tool_calls/claim", json!({ "tools": self.tools, "wait": WAIT })).await?;
        anyhow::ensure!(claimed.status == 200, "the claim is answered with {}", claimed.status);
        let body = claimed.json();
        let Some(claim) = body.get("claim").filter(|claim| claim.is_object()) else { return Ok(None) };
        let text = |pointer: &str| {
            claim.pointer(pointer).and_then(Value::as_str).map(str::to_owned).context("a text")
        };
        let number = |pointer: &str| claim.pointer(pointer).and_then(Value::as_u64).context("a number");
        let call = text("/call/tool_call_id")?;
        let input = claim.pointer("/call/input").context("input")?;
        let attempt = u32::try_from(number("/call/attempt")?)?;
        let mut job = Job::new(&text("/call/tool_name")?, &call, None, attempt, input)?;
        let (tenant, user) = (text("/call/requester/tenant_id")?, text("/call/requester/user_id")?);
        job.requester = Some(Requester { tenant, user });
        Ok(Some(ClaimedJob {
            job,
            permit: text("/permit")?,
            lease: Duration::from_millis(number("/lease_ms")?),
        }))
    }

    /// Executes a call and reports its outcome. A call that hangs ends with its lease.
    async fn execute(&self, claimed: ClaimedJob) -> Result<()> {
        let ClaimedJob { mut job, permit, lease } = claimed;
        let call = job.execution.call.clone();
        let (stop, mut stops) = watch::channel(false);
        let stopped = async move {
            if stops.wait_for(|stops| *stops).await.is_err() {
                pending::<()>().await;
            }
        };
        let executed = tokio::select! {
            executed = self.bench.execute(&mut job, stopped) => Some(executed?),
            () = self.renew(&call, &permit, lease, stop) => None,
        };
        let Some(outcome) = executed else { return Ok(()) };
        let report = match &outcome {
            Ok(output) => json!({ "permit": permit, "outcome": "succeeded", "result": output }),
            Err(why) => json!({ "permit": permit, "outcome": "failed", "error": why }),
        };
        let path = format!("/tool_calls/{call}/settle");
        let settle = || Request::post(&path, &self.token, Some(report.clone()));
        self.bench.report(&job, &outcome, self.server, settle).await
    }

    /// Renews the lease, and reports when a cancel of the call is requested. Completes after a time that only a call that hangs
    /// takes, and not with the lease: the end of a lease stops no effect.
    async fn renew(&self, call: &str, permit: &str, lease: Duration, stop: watch::Sender<bool>) {
        let path = format!("/tool_calls/{call}/renew");
        for _ in 0..RENEWALS {
            sleep(lease / 3).await;
            if let Ok(renewed) = self.post(&path, json!({ "permit": permit })).await
                && renewed.json().get("cancel_requested") == Some(&Value::Bool(true))
            {
                stop.send_replace(true);
            }
        }
    }
}
