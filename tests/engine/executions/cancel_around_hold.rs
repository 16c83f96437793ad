//! A turn that is cancelled, or whose process is killed, just before and just after its hold: every call that
//! a page was shown exists, every pending call is shown, no unapproved call runs, and the thread continues.
//! `client_disconnects` covers clients that disconnect.

use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::ui::{ui_submit, ui_user};
use holdpoint_testkit::{Client, Deployment, Embedded, JsonFields, Process, Rows, UNKNOWN, call, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// A server whose leases are too long to be renewed within a test, except by a process that is notified.
async fn patient() -> Embedded {
    Embedded::with(|config| config.approval.lease = Duration::from_secs(3600)).await
}

fn begins(index: usize, tool: &str) -> ModelEvent {
    ModelEvent::CallStarted { index, provider_call_id: format!("p-{tool}"), tool_name: tool.to_owned() }
}

fn arguments(index: usize, delta: &str) -> ModelEvent {
    ModelEvent::CallArguments { index, delta: delta.to_owned() }
}

/// The number of model events: text, a call that would run at once and a call that would be held.
const EVENTS: usize = 8;

fn both_calls() -> [ModelEvent; EVENTS] {
    [
        ModelEvent::Text("I will.".to_owned()),
        begins(0, "look"),
        arguments(0, "{\"note\":\"1\"}"),
        ModelEvent::CallFinished { index: 0 },
        begins(1, "pay"),
        arguments(1, "{\"note\":\"2\"}"),
        ModelEvent::CallFinished { index: 1 },
        ModelEvent::Finished { reason: FinishReason::ToolCalls, usage: None, provider_state: None },
    ]
}

async fn running(app: &Embedded) -> String {
    let found = async || app.rows.all("SELECT run_id FROM runs WHERE status = 'running'").await.pop();
    eventually("the turn runs", found).await.text("run_id").to_owned()
}

async fn cancel(client: &Client, run: &str) -> holdpoint_testkit::Answer {
    client.post(&format!("/runs/{run}/cancel"), &Value::Null).await
}

/// Asserts that no call exists, in rows or on a reloaded page, and that the thread continues.
async fn no_call_is_left(app: &Embedded, thread: &str) {
    assert_eq!(app.rows.count("tool_calls").await, 0);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    for format in ["", "?format=v4", "?format=ui-v5", "?format=ui-v6"] {
        let shown = app.client.get(&format!("/threads/{thread}/messages{format}")).await.body;
        let answer = shown.list("results").last().unwrap().to_string();
        assert!(answer.contains("I will.") && !answer.contains("pay"), "{format}: {answer}");
    }
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 0);
    assert_eq!(app.client.resume(thread).await.refused(), (409, "nothing_to_continue".to_owned()));
    let gate = app.scene.gate();
    gate.add_permits(2);
    app.scene.answers("Never mind.");
    assert_eq!(app.client.send_message(thread, "leave it").await.text(), "Never mind.");
    assert_eq!(app.scene.requests().pop().unwrap().messages.len(), 2, "what broke off is not sent");
}

#[tokio::test]
async fn a_turn_cancelled_while_it_streams_arguments_leaves_no_call() {
    let app = patient().await;
    let thread = app.client.thread().await;
    app.scene.then(both_calls().map(Ok).to_vec());
    let gate = app.scene.gate();
    gate.add_permits(6);
    let stop = async {
        let run = running(&app).await;
        eventually("the model speaks", async || (gate.available_permits() == 0).then_some(())).await;
        cancel(&app.client, &run).await
    };
    let (turn, stopped) = tokio::join!(app.client.send_message(&thread, "pay"), stop);
    stopped.has(200, "status", "cancelled");
    assert_eq!(turn.codes(), "f0bcbcd", "{}", turn.raw);
    assert_eq!(turn.one('d')["finishReason"], "other");
    no_call_is_left(&app, &thread).await;
}

#[tokio::test]
async fn a_turn_cancelled_between_the_end_of_the_model_and_the_commit_leaves_no_call() {
    let app = patient().await;
    let thread = app.client.thread().await;
    app.scene.then(both_calls().map(Ok).to_vec());
    let gate = app.scene.gate();
    gate.add_permits(EVENTS - 1);
    let stop = async {
        running(&app).await;
        eventually("the model speaks", async || (gate.available_permits() == 0).then_some(())).await;
        // The row as another process writes it. This process has not read it when the model ends.
        assert_eq!(app.rows.change("UPDATE runs SET cancel_requested_at = created_at").await, Ok(1));
        gate.add_permits(1);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), stop);
    assert_eq!(turn.codes(), "f0bcbcd", "{}", turn.raw);
    assert_eq!(turn.one('d')["finishReason"], "other");
    let runs = app.rows.all("SELECT status FROM runs").await;
    assert_eq!(runs, [json!({ "status": "cancelled" })]);
    no_call_is_left(&app, &thread).await;
}

/// Has the database refuse the end of a turn at its hold.
async fn forbid_the_end(rows: &Rows) {
    let forbid = if rows.is_postgres() {
        "CREATE FUNCTION not_now() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION 'not now'; END $$;
         CREATE TRIGGER not_now BEFORE UPDATE ON runs FOR EACH ROW
             WHEN (NEW.status = 'waiting') EXECUTE FUNCTION not_now()"
    } else {
        "CREATE TRIGGER not_now BEFORE UPDATE ON runs WHEN NEW.status = 'waiting'
             BEGIN SELECT RAISE(ABORT, 'not now'); END"
    };
    rows.change(forbid).await.unwrap();
}

async fn allow_the_end(rows: &Rows) {
    let on = if rows.is_postgres() { " ON runs" } else { "" };
    rows.change(&format!("DROP TRIGGER not_now{on}")).await.unwrap();
}

/// Reads until the response contains this text. Returns the text read.
async fn reads_until(response: &mut reqwest::Response, text: &str) -> String {
    let mut received = String::new();
    while !received.contains(text) {
        let chunk = response.chunk().await.unwrap().unwrap_or_else(|| panic!("no {text} in {received}"));
        received.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    received
}

#[tokio::test]
async fn a_turn_cancelled_between_the_hold_and_the_end_of_its_stream_cancels_the_shown_call() {
    for dialect in ["data-v1", "ui-v5", "ui-v6"] {
        let app = patient().await;
        forbid_the_end(&app.rows).await;
        let thread = app.client.thread().await;
        // A step with a call that runs ends in a later transaction than its hold.
        app.scene
            .calls(&[call("l", "look", &json!({ "note": "1" })), call("p", "pay", &json!({ "note": "10" }))]);
        let body = ui_submit(&thread, &[ui_user("u", "pay")]);
        let path = app.client.url(&format!("/qa/chat_streamed/{thread}"));
        let request = app.client.http.post(path).json(&body).header("x-stream-protocol", dialect);
        let mut turn = request.send().await.unwrap();
        let asks = match dialect {
            "data-v1" => "8:[",
            "ui-v5" => "data-tool-validation",
            _ => "tool-approval-request",
        };
        reads_until(&mut turn, asks).await;
        let calls = app.rows.all("SELECT tool_call_id, state FROM tool_calls WHERE held").await;
        let [shown] = &calls[..] else { panic!("{dialect}: {calls:?}") };
        assert_eq!(shown["state"], "pending", "{dialect}: the hold is emitted after its commit");
        let id = shown.text("tool_call_id");
        let stopped = cancel(&app.client, &running(&app).await).await;
        assert_eq!((stopped.status, &stopped.body["status"]), (200, &json!("cancelled")), "{dialect}");
        assert_eq!(stopped.body["pending"], json!([]), "{dialect}");
        turn.text().await.unwrap();

        assert_eq!(app.client.call(id).await["state"], "cancelled", "{dialect}: it is not missing");
        let late = app.client.approve(id).await;
        assert_eq!(late.failure(), (409, "cancelled"), "{dialect}");
        let again = app.client.resume(&thread).await;
        again.assert_states_only();
        assert!(again.raw.contains("cancelled"), "{dialect}: {}", again.raw);
        app.scene.answers("Never mind.");
        assert_eq!(app.client.send_message(&thread, "leave it").await.text(), "Never mind.", "{dialect}");
        assert_eq!(app.ledger.lines(), ["look 1"]);
    }
}

/// Starts a turn on its own connection.
async fn begin(client: &Client, thread: &str, words: &str) -> reqwest::Response {
    client.begin(thread, &json!({ "content": words })).await
}

/// Starts the next server on the same database and waits until it has closed the turn of the dead one.
async fn next_server(deployment: &Deployment, rows: &Rows) -> Process {
    let server = deployment.start("30s");
    let over = async || (rows.count("runs WHERE status = 'running'").await == 0).then_some(());
    eventually("the turn is closed", over).await;
    server
}

/// Returns the one pending call. Asserts that every route shows it.
async fn the_pending_one(client: &Client, rows: &Rows, thread: &str) -> String {
    let pending = rows.all("SELECT tool_call_id FROM tool_calls WHERE state = 'pending'").await;
    let [pending] = &pending[..] else { panic!("{pending:?}") };
    let id = pending.text("tool_call_id");
    let again = client.resume(thread).await;
    assert_eq!(again.pending(), [id], "{}", again.raw);
    assert_eq!(again.all('f').len(), 0, "no model is asked: {}", again.raw);
    for (format, shown) in [("v4", "pending"), ("ui-v5", "pending"), ("ui-v6", "approval-requested")] {
        let page = client.get(&format!("/threads/{thread}/messages?format={format}")).await.body.to_string();
        assert!(page.contains(id) && page.contains(shown), "{format}: {page}");
    }
    id.to_owned()
}

/// Asserts that the thread continues: the call runs once when approved, and the model reads its outcome.
async fn assert_continues(deployment: &Deployment, client: &Client, thread: &str, id: &str, before: &[&str]) {
    assert_eq!(client.approve(id).await.body["state"], "succeeded");
    assert_eq!(client.resume(thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(client.send_message(thread, "thanks").await.text(), "thanks");
    let effects: Vec<_> = before.iter().copied().chain(["transfer 10", "transfer 10 done"]).collect();
    assert_eq!(deployment.ledger(), effects);
}

#[tokio::test]
async fn k4_a_kill_while_arguments_are_streamed_leaves_no_call_and_the_answer_is_regenerated() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("30s");
    let rows = deployment.rows().await;
    let thread = server.client.thread().await;
    let mut turn = begin(&server.client, &thread, "slowly 10").await;
    let received = reads_until(&mut turn, "c:{").await;
    assert!(received.contains("b:{") && !received.contains("9:{"), "{received}");
    deployment.wait_started(&["slowly"]).await;
    server.kill();

    let server = next_server(&deployment, &rows).await;
    assert_eq!(rows.count("tool_calls").await, 0);
    let broken = server.client.messages(&thread).await.pop().unwrap();
    assert_eq!(broken["status"], "interrupted");
    assert!(!broken.to_string().contains("tool_call"), "{broken}");
    deployment.release();
    let again = server.client.resume(&thread).await;
    assert_eq!(again.codes(), "fbc98ed", "{}", again.raw);
    let id = the_pending_one(&server.client, &rows, &thread).await;
    let output = ["slowly", "slowly", "all is said"];
    assert_continues(&deployment, &server.client, &thread, &id, &output).await;
}

#[tokio::test]
async fn k5_a_kill_between_the_end_of_the_model_and_the_commit_shows_and_leaves_no_call() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("30s");
    let rows = deployment.rows().await;
    let thread = server.client.thread().await;
    let turn = begin(&server.client, &thread, "slowly 10").await;
    deployment.wait_started(&["slowly"]).await;
    let lock = if rows.is_postgres() { "BEGIN; SELECT 1 FROM threads FOR UPDATE" } else { "BEGIN IMMEDIATE" };
    rows.change(lock).await.unwrap();
    deployment.release();
    deployment.wait_started(&["slowly", "all is said"]).await;
    server.kill();
    rows.change("ROLLBACK").await.unwrap();
    // Reading fails where the process died.
    let mut turn = turn;
    let mut received = String::new();
    while let Ok(Some(chunk)) = turn.chunk().await {
        received.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(!received.contains("9:{") && !received.contains("8:["), "{received}");

    let server = next_server(&deployment, &rows).await;
    assert_eq!(rows.count("tool_calls").await, 0);
    assert_eq!(server.client.resume(&thread).await.codes(), "fbc98ed");
    let id = the_pending_one(&server.client, &rows, &thread).await;
    let output = ["slowly", "all is said", "slowly", "all is said"];
    assert_continues(&deployment, &server.client, &thread, &id, &output).await;
}

#[tokio::test]
async fn k6_after_a_kill_between_commit_and_annotation_the_card_exists_and_the_run_call_is_unknown() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("30s");
    let rows = deployment.rows().await;
    let thread = server.client.thread().await;
    let mut turn = begin(&server.client, &thread, "both 10").await;
    deployment.wait_started(&["sync 10"]).await;
    let received = reads_until(&mut turn, "\"toolName\":\"transfer\",\"args\"").await;
    assert!(!received.contains("8:["), "{received}");
    server.kill();

    let server = next_server(&deployment, &rows).await;
    let settled = async || (rows.count("tool_calls WHERE state = 'executing'").await == 0).then_some(());
    eventually("nobody runs the other any more", settled).await;
    deployment.release();
    let id = the_pending_one(&server.client, &rows, &thread).await;
    let answer = server.client.messages(&thread).await.pop().unwrap();
    let ran = answer.list("parts").iter().find(|part| part["tool_call"]["tool_name"] == "sync");
    let ran = &ran.unwrap()["tool_call"];
    assert_eq!((&ran["state"], &ran["result"]), (&json!("interrupted"), &json!(UNKNOWN)));
    assert_continues(&deployment, &server.client, &thread, &id, &["sync 10"]).await;
}

#[tokio::test]
async fn k7_after_a_kill_between_annotation_and_end_of_stream_the_card_exists() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("30s");
    let rows = deployment.rows().await;
    let thread = server.client.thread().await;
    forbid_the_end(&rows).await;
    // A step with a call that runs ends in a later transaction than its hold.
    deployment.release();
    let mut turn = begin(&server.client, &thread, "both 10").await;
    let received = reads_until(&mut turn, "e:{").await;
    assert!(received.contains("8:[") && !received.contains("d:{"), "{received}");
    server.kill();
    allow_the_end(&rows).await;

    let server = next_server(&deployment, &rows).await;
    let id = the_pending_one(&server.client, &rows, &thread).await;
    assert!(received.contains(&id), "{received}");
    assert_continues(&deployment, &server.client, &thread, &id, &["sync 10", "sync 10 done"]).await;
}
