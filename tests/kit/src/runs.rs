//! Runs as clients see them: decisions at a run or a session, and waits for a status.

use crate::{Answer, Client, Embedded, JsonFields, Rows, eventually};
use serde_json::{Value, json};

/// The events of a run whose one call is held, approved and runs, and which then completes.
pub const HELD_AND_APPROVED: [&str; 9] = [
    "run.started",
    "tool.called",
    "tool.requires_approval",
    "run.waiting",
    "tool.approved",
    "tool.started",
    "tool.succeeded",
    "run.resumed",
    "run.completed",
];

/// Approves a call at its run.
pub async fn approve(client: &Client, call: &str) -> Answer {
    let run = client.run_of(call).await;
    client.post(&format!("/runs/{run}/approve"), &json!({ "tool_call_id": call })).await
}

/// Rejects a call at its run, for this reason.
pub async fn reject(client: &Client, call: &str, reason: &str) -> Answer {
    let run = client.run_of(call).await;
    client.post(&format!("/runs/{run}/reject"), &json!({ "tool_call_id": call, "reason": reason })).await
}

pub async fn decide_in(client: &Client, session: &str, call: &str, decision: &str) -> Answer {
    client.post(&format!("/sessions/{session}/approvals/{call}"), &json!({ "decision": decision })).await
}

/// The run, once it has this status.
pub async fn run_becomes(client: &Client, run: &str, status: &str) -> Value {
    let found = async || {
        let run = client.get(&format!("/runs/{run}")).await;
        run.has_status(200);
        Some(run.body).filter(|run| run["status"] == status)
    };
    eventually(&format!("the run becomes {status}"), found).await
}

/// The text of the last message of the thread.
pub async fn last_words(client: &Client, thread: &str) -> String {
    let last = client.messages(thread).await.pop().unwrap();
    let parts = last.list("parts").iter();
    parts.filter(|part| part["type"] == "text").map(|part| part.text("text")).collect()
}

/// The types of a run's events, in order.
pub async fn events_of(rows: &Rows, run: &str) -> Vec<String> {
    let sql = format!("SELECT type FROM events WHERE run_id = '{run}' ORDER BY event_id");
    let found = rows.all(&sql).await;
    found.iter().map(|event| event.text("type").to_owned()).collect()
}

/// The number of requests to the model.
pub fn model_requests(app: &Embedded) -> usize {
    app.scene.requests().len()
}
