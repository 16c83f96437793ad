//! `tool.decision_refused`: attempts that had no effect are on the record of their call.

use super::{acme, chief, office};
use futures::future::join_all;
use holdpoint_testkit::{Client, Embedded, JsonFields};
use serde_json::{Value, json};

/// The refused decisions on the record of a call: the actor, and what was refused.
async fn refused(client: &Client, id: &str) -> Vec<(String, Value)> {
    let page = client.get(&format!("/tool_calls/{id}/events?page_size=200")).await.body;
    let events = page.list("results").iter();
    events
        .filter(|event| event["type"] == "tool.decision_refused")
        .map(|event| (event.text("actor").to_owned(), event["data"]["refused"].clone()))
        .collect()
}

fn attempt(actor: &str, decision: &str, code: &str) -> (String, Value) {
    (format!("user:{actor}"), json!({ "decision": decision, "code": code, "surface": "rest" }))
}

#[tokio::test]
async fn each_refusal_with_403_or_409_is_an_event_of_the_call() {
    let app = office().await;
    let chief = chief(&app);
    let (_, id) = app.held("refuse", "1").await;
    app.client.approve(&id).await.has_status(403);
    let stale = json!({ "toolCallId": id, "isValidated": true, "inputHash": "0".repeat(64) });
    assert_eq!(chief.validate(&stale).await.code(), "stale");
    chief.reject(&id).await.has_status(200);
    assert_eq!(chief.approve(&id).await.code(), "already_decided");
    assert_eq!(chief.reject(&id).await.status, 200, "a repeat is no refusal");
    let expected = [
        attempt("alice", "approve", "forbidden"),
        attempt("carol", "approve", "stale"),
        attempt("carol", "approve", "already_decided"),
    ];
    assert_eq!(refused(&app.client, &id).await, expected);
    assert_eq!(refused(&chief, &id).await, expected, "an approver sees them too");
    assert_eq!(app.client.call(&id).await["state"], "rejected");

    let (_, cancelled) = app.held("pay", "2").await;
    app.client.post(&format!("/tool_calls/{cancelled}/cancel"), &json!({})).await;
    assert_eq!(chief.approve(&cancelled).await.code(), "cancelled");
    assert_eq!(refused(&chief, &cancelled).await, [attempt("carol", "approve", "cancelled")]);

    let (_, expired) = app.held("pay", "3").await;
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{expired}'");
    assert_eq!(app.rows.change(&overdue).await, Ok(1));
    assert_eq!(chief.reject(&expired).await.code(), "expired");
    assert_eq!(refused(&chief, &expired).await, [attempt("carol", "reject", "expired")]);
}

#[tokio::test]
async fn other_refusals_leave_no_event() {
    let app = office().await;
    let (_, id) = app.held("pay", "1").await;
    acme(&app, "bob", &[]).approve(&id).await.has_status(404);
    let invalid = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": 7 } });
    app.client.validate(&invalid).await.has_status(422);
    let remembered = json!({ "toolCallId": id, "isValidated": false, "remember": "session" });
    app.client.validate(&remembered).await.has_status(422);
    let unreadable = json!({ "toolCallId": id, "isValidated": "yes" });
    app.client.validate(&unreadable).await.has_status(400);
    assert_eq!(app.rows.count("events WHERE type = 'tool.decision_refused'").await, 0);
}

#[tokio::test]
async fn the_routes_of_runs_and_sessions_record_refusals_too() {
    let app = office().await;
    let (thread, id) = app.held("refuse", "1").await;
    let run = app.client.run_of(&id).await;
    let body = json!({ "tool_call_id": id });
    app.client.post(&format!("/runs/{run}/approve"), &body).await.has_status(403);
    let path = format!("/sessions/{thread}/approvals/{id}");
    app.client.post(&path, &json!({ "decision": "allow_once" })).await.has_status(403);
    let batch = json!({ "decisions": [{ "toolCallId": id, "isValidated": true }] });
    app.client.post("/qa/validate_tools", &batch).await;
    assert_eq!(refused(&app.client, &id).await, vec![attempt("alice", "approve", "forbidden"); 3]);
}

#[tokio::test]
async fn a_call_records_at_most_twenty_refusals_of_each_person() {
    let app: Embedded = office().await;
    let (_, id) = app.held("refuse", "1").await;
    let answers = join_all((0..25).map(|_| app.client.approve(&id))).await;
    assert!(answers.iter().all(|answer| answer.status == 403), "{answers:?}");
    let carol = chief(&app);
    carol.reject(&id).await;
    carol.approve(&id).await;
    let all = refused(&app.client, &id).await;
    let of = |actor: &str| all.iter().filter(|(by, _)| by == actor).count();
    assert_eq!((of("user:alice"), of("user:carol"), all.len()), (20, 1, 21));
}
