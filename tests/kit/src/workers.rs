//! Worker tools, and executions that a worker holds.

use crate::{Answer, Client, Embedded, JsonFields, call, probes};
use holdpoint::config::Config;
use holdpoint::tools::{RiskLevel, ToolRegistry, ToolSpec};
use serde_json::{Value, json};
use std::time::Duration;

/// The longest execution of a worker in these tests.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A tool whose calls workers execute.
pub fn spec(name: &str, hil: bool, idempotent: bool) -> ToolSpec {
    let schema = json!({ "type": "object", "properties": { "note": { "type": "string" } },
                         "required": ["note"], "additionalProperties": false });
    let risk = if hil { RiskLevel::High } else { RiskLevel::Low };
    ToolSpec { hil, idempotent, risk, ..ToolSpec::unclassified(name, "Does it elsewhere.", schema) }
}

/// Adds worker tools: `ship` and `reship` ask, `pack` and `repack` do not, `reship` and `repack` may be repeated.
pub fn add_worker_tools(tools: &mut ToolRegistry, timeout: Duration) {
    for (name, hil, idempotent) in
        [("ship", true, false), ("pack", false, false), ("reship", true, true), ("repack", false, true)]
    {
        tools.register_worker_tool(spec(name, hil, idempotent), timeout).unwrap();
    }
}

/// A server with worker tools beside the probes. A decision does not wait for a worker.
pub async fn start() -> Embedded {
    start_with(TIMEOUT, |_| {}).await
}

pub async fn start_with(timeout: Duration, change: impl FnOnce(&mut Config)) -> Embedded {
    let app = Embedded::start().await;
    let mut tools = probes(&app.ledger);
    add_worker_tools(&mut tools, timeout);
    app.redeploy_with(tools, |config| {
        config.approval.wait = Duration::ZERO;
        change(config);
    })
    .await
}

/// A server that finds the end of a lease soon.
pub async fn impatient(timeout: Duration) -> Embedded {
    start_with(timeout, |config| {
        config.approval.lease = Duration::from_secs(2);
        config.approval.sweep = Duration::from_millis(20);
    })
    .await
}

/// An execution that a worker holds.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: String,
    pub permit: String,
    pub call: Value,
}

impl Job {
    pub fn of(answer: &Answer) -> Option<Self> {
        answer.has_status(200);
        let claim = answer.body.get("claim")?;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let call = claim["call"].clone();
        Some(Self { id: text(&call["tool_call_id"]), permit: text(&claim["permit"]), call })
    }

    pub async fn renew(&self, worker: &Client) -> Answer {
        let body = json!({ "permit": self.permit });
        worker.post(&format!("/tool_calls/{}/renew", self.id), &body).await
    }

    pub async fn settle(&self, worker: &Client, outcome: &Value) -> Answer {
        let mut body = outcome.clone();
        body["permit"] = json!(self.permit);
        worker.post(&format!("/tool_calls/{}/settle", self.id), &body).await
    }

    /// Settles the call with this output.
    pub async fn succeed(&self, worker: &Client, result: &Value) -> Answer {
        self.settle(worker, &json!({ "outcome": "succeeded", "result": result })).await
    }
}

/// Posts a claim of these tools, which waits this many seconds.
pub async fn ask(worker: &Client, tools: &[&str], wait: u64) -> Answer {
    worker.post("/tool_calls/claim", &json!({ "tools": tools, "wait": wait })).await
}

/// Claims a call of this tool that is approved already.
pub async fn claim(worker: &Client, tool: &str) -> Job {
    Job::of(&ask(worker, &[tool], 0).await).expect("a call is approved")
}

/// Whether no call of this tool can be claimed now.
pub async fn nothing(worker: &Client, tool: &str) -> bool {
    Job::of(&ask(worker, &[tool], 0).await).is_none()
}

/// A call of a tool that asks, approved. Returns the thread and the call.
pub async fn approved(app: &Embedded, tool: &str, note: &str) -> (String, String) {
    let (thread, id) = app.held(tool, note).await;
    let decided = app.client.approve(&id).await;
    decided.has_status(202);
    assert_eq!(app.client.call(&id).await["state"], "approved");
    (thread, id)
}

/// A call of a tool that does not ask, in a new thread. Returns the thread and the call.
pub async fn cleared(app: &Embedded, tool: &str, note: &str) -> (String, String) {
    let thread = app.client.thread().await;
    app.scene.calls(&[call(&format!("p-{note}"), tool, &json!({ "note": note }))]);
    let turn = app.client.send_message(&thread, &format!("please {tool} {note}")).await;
    let id = turn.one('9').text("toolCallId").to_owned();
    (thread, id)
}

pub fn code(answer: &Answer) -> (u16, &str) {
    answer.failure()
}
