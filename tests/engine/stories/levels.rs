//! Every tool has a risk level: a low-risk call runs, a high-risk call makes the run wait. The run is
//! approved, rejected or cancelled, and then continues with the outcome of the call; the events record every
//! step.

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::runs::{approve, events_of, last_words, model_requests, reject, run_becomes};
use holdpoint_testkit::{Embedded, call};
use serde_json::{Value, json};

/// A run in which a low-risk call ran and a high-risk call is pending, so that the run waits. Returns the
/// thread, the run and the call.
async fn run_that_waits(app: &Embedded, note: &str) -> (String, String, String) {
    let thread = app.client.thread().await;
    app.scene.calls(&[
        call("read", "look", &json!({ "note": note })),
        call("write", "pay", &json!({ "note": note })),
    ]);
    let turn = app.client.send_message(&thread, "export the report").await;
    assert_eq!(turn.codes(), "fbcbc99a8ed", "{}", turn.raw);
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let run = turn.headers["x-run-id"].to_str().unwrap().to_owned();
    let waits = app.client.get(&format!("/runs/{run}")).await.body;
    assert_eq!((&waits["status"], &waits["pending"]), (&json!("waiting"), &json!([id])));
    (thread, run, id.clone())
}

#[tokio::test]
async fn an_approved_run_executes_the_shown_arguments_and_continues_with_the_result() {
    let app = Embedded::start().await;
    let (thread, run, id) = run_that_waits(&app, "reports/q3.csv").await;
    let asked_before = model_requests(&app);
    app.scene.answers("Exported.");
    // The approver decides before any client waits for the decision.
    let decided = approve(&app.client, &id).await;
    let expected = json!({ "success": true, "run_id": run, "tool_call_id": id, "state": "approved" });
    assert_eq!((decided.status, decided.body), (200, expected));
    run_becomes(&app.client, &run, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "Exported.");
    assert_eq!(app.ledger.lines(), ["look reports/q3.csv", "pay reports/q3.csv"]);
    assert_eq!(model_requests(&app), asked_before + 1, "the model does not repeat the call");
    let read = app.scene.requests().pop().unwrap().messages;
    let result = |message: &ModelMessage| match message {
        ModelMessage::Tool { text, .. } => Some(text.clone()),
        _ => None,
    };
    let results: Vec<_> = read.iter().filter_map(result).collect();
    assert_eq!(
        results,
        ["{\"seen\":\"reports/q3.csv\"}", "{\"paid\":\"reports/q3.csv\"}"],
        "not {{approved: true}}"
    );
    let expected = [
        "run.started",
        "tool.called",
        "tool.called",
        "tool.requires_approval",
        "tool.started",
        "tool.succeeded",
        "run.waiting",
        "tool.approved",
        "tool.started",
        "tool.succeeded",
        "run.resumed",
        "run.completed",
    ];
    let mut events = events_of(&app.rows, &run).await;
    events[1..5].sort();
    let mut expected: Vec<_> = expected.map(str::to_owned).into();
    expected[1..5].sort();
    assert_eq!(events, expected);
}

#[tokio::test]
async fn the_model_reads_the_reason_of_a_rejection_and_takes_another_way() {
    let app = Embedded::start().await;
    let (thread, run, id) = run_that_waits(&app, "/etc/passwd").await;
    app.scene.calls(&[call("again", "look", &json!({ "note": "a draft" }))]).answers("I only looked.");
    let rejected = reject(&app.client, &id, "never outside of reports/").await;
    rejected.has(200, "state", "rejected");
    run_becomes(&app.client, &run, "completed").await;
    assert!(last_words(&app.client, &thread).await.ends_with("I only looked."));
    assert_eq!(app.ledger.lines(), ["look /etc/passwd", "look a draft"]);
    let reported = app.client.call(&id).await["result"].clone();
    assert_eq!(reported, "Tool execution rejected by user. Reason: never outside of reports/");
    assert_eq!(events_of(&app.rows, &run).await.iter().filter(|event| *event == "tool.rejected").count(), 1);
    // A second decision on the call comes too late, and a call of another run is not found in this run.
    assert_eq!(approve(&app.client, &id).await.code(), "run_not_waiting");
    let (_, _, other) = run_that_waits(&app, "x").await;
    let foreign = app.client.post(&format!("/runs/{run}/approve"), &json!({ "tool_call_id": other })).await;
    foreign.failed_with(404, "not_found");
    assert_eq!(app.client.call(&other).await["state"], "pending");
}

#[tokio::test]
async fn a_run_cancelled_while_waiting_withdraws_its_call_and_never_resumes() {
    let app = Embedded::start().await;
    let (thread, run, id) = run_that_waits(&app, "reports/q3.csv").await;
    let cancelled = app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
    cancelled.has(200, "status", "cancelled");
    assert_eq!(cancelled.body["pending"], json!([]));
    assert_eq!(app.client.call(&id).await["state"], "cancelled");
    let late = approve(&app.client, &id).await;
    late.failed_with(409, "run_not_waiting");
    let events = events_of(&app.rows, &run).await;
    assert_eq!(events.iter().filter(|event| *event == "tool.cancelled").count(), 1);
    assert_eq!(events.iter().filter(|event| *event == "run.cancelled").count(), 1);
    assert_eq!(app.ledger.lines(), ["look reports/q3.csv"]);
    app.scene.answers("Hello.");
    assert_eq!(app.client.send_message(&thread, "hello").await.text(), "Hello.");
}
