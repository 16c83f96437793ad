//! Sub-agents: a child thread executes the call, its holds show in the call's session, and its end is the end
//! of the call.

mod crashes;
mod handlers;
mod pages;
mod schema;
mod stopping;
mod stories;

use holdpoint::llm::{ModelMessage, ModelRequest};
use holdpoint_testkit::runs::run_becomes;
use holdpoint_testkit::subagents::{hold_in, start, unwatchful, with_agents};
use holdpoint_testkit::{Client, Embedded, JsonFields, Rows, call, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// A server with a short sweep interval.
async fn watchful() -> Embedded {
    with_agents(|config| config.approval.sweep = Duration::from_millis(20)).await
}

/// A call that a child executes.
struct Errand {
    /// The thread of the call, which is the root of its session.
    thread: String,
    call: String,
    /// The run of the call.
    run: String,
}

impl Errand {
    /// Has the model call `helper` with this task in a new thread. The test has already set the steps of the
    /// child's model in the scene.
    async fn begin(app: &Embedded, task: &str) -> Self {
        let thread = app.client.thread().await;
        let turn = app.client.send_message(&thread, task).await;
        let call = turn.one('9').text("toolCallId").to_owned();
        let run = app.client.run_of(&call).await;
        Self { thread, call, run }
    }

    /// An errand whose child holds a call of `pay`, and that call.
    async fn held(app: &Embedded) -> (Self, String) {
        app.scene.calls(&[helper("p", "pay 10")]).calls(&[call("p", "pay", &json!({ "note": "10" }))]);
        let errand = Self::begin(app, "get help").await;
        let hold = hold_in(&app.client, &errand.thread).await;
        (errand, hold)
    }

    /// The child's run, once it exists.
    async fn child(&self, client: &Client) -> String {
        child_of(client, &self.call).await
    }

    /// The child's thread.
    async fn child_thread(&self, client: &Client) -> String {
        let run = client.get(&format!("/runs/{}", self.child(client).await)).await;
        run.body.text("thread_id").to_owned()
    }
}

/// A call of `helper` with this task.
fn helper(id: &str, task: &str) -> (String, String, String) {
    call(id, "helper", &json!({ "note": task }))
}

/// The child run of a call, once it exists.
async fn child_of(client: &Client, call: &str) -> String {
    let found = async || client.call(call).await["child_run_id"].as_str().map(str::to_owned);
    eventually("a child executes the call", found).await
}

/// The tool results in this request to the model.
fn answers(request: &ModelRequest) -> Vec<String> {
    let sent = request.messages.iter().filter_map(|message| match message {
        ModelMessage::Tool { text, .. } => Some(text.clone()),
        _ => None,
    });
    sent.collect()
}

/// The run of a call, once it has this status.
async fn run_of_becomes(client: &Client, call: &str, status: &str) -> Value {
    run_becomes(client, &client.run_of(call).await, status).await
}

/// The number of times that a run was resumed.
async fn resumed(rows: &Rows, run: &str) -> i64 {
    rows.count(&format!("events WHERE run_id = '{run}' AND type = 'run.resumed'")).await
}
