//! What time leaves behind is moved on without anybody asking.

use crate::support::{Embedded, call, eventually};
use serde_json::json;
use std::time::Duration;

/// Longer ago than any lease or deadline.
const LONG_AGO: &str = "1000000";

async fn swept() -> Embedded {
    Embedded::with(|config| config.approval.sweep = Duration::from_millis(20)).await
}

async fn set(app: &Embedded, id: &str, what: &str) {
    let change = format!("UPDATE tool_calls SET {what} WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&change).await, Ok(1));
}

#[tokio::test]
async fn a_call_nobody_answers_expires_by_itself_and_the_model_is_told() {
    let app = swept().await;
    let (thread, id) = app.held("pay", "10").await;
    let (_, stays) = app.held("pay", "11").await;
    set(&app, &id, "expires_at = created_at").await;
    let call = app.client.becomes(&id, "expired").await;
    assert_eq!((&call["validated"], &call["decision"]["decision"]), (&json!(false), &json!("expire")));
    assert_eq!(
        (&call["decision"]["by"], &call["decision"]["surface"]),
        (&json!("system:expiry"), &json!("sweeper"))
    );
    let late = app.client.approve(&id).await;
    assert_eq!((late.status, late.code()), (409, "expired"));
    app.scene.says("Too late.");
    let told = app.client.go_on(&thread).await;
    assert_eq!(*told.one('8'), json!([{ "toolCallId": id, "validated": "expired" }]));
    assert_eq!(told.text(), "Too late.");
    assert_eq!(app.client.call(&stays).await["state"], "pending");
    assert_eq!(app.rows.count("events WHERE type = 'tool.expired'").await, 1);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_yes_that_nobody_acted_on_in_time_is_failed_and_did_not_run() {
    let app = swept().await;
    let (thread, id) = app.held("pay", "10").await;
    app.commit_yes(&id, LONG_AGO, LONG_AGO).await;
    let call = app.client.becomes(&id, "failed").await;
    assert_eq!(call["validated"], true);
    assert_eq!(call["result"], "Approved by a person, but not begun in time. The tool did not run.");
    assert_eq!(call.get("started_at"), None);
    let repeat = app.client.approve(&id).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!((&repeat.body["success"], &repeat.body["state"]), (&json!(false), &json!("failed")));
    app.scene.says("It did not run.");
    assert_eq!(app.client.go_on(&thread).await.text(), "It did not run.");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_yes_that_nobody_acted_on_is_acted_on_while_there_is_time() {
    let app = swept().await;
    let (thread, id) = app.held("pay", "10").await;
    app.commit_yes(&id, LONG_AGO, "expires_at").await;
    let call = app.client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "paid": "10" }));
    app.scene.says("Paid.");
    assert_eq!(app.client.go_on(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn an_execution_whose_lease_is_over_is_interrupted_and_its_late_outcome_is_told() {
    // A lease so long that it is not renewed within the test.
    let app = Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3600);
        config.approval.wait = Duration::ZERO;
    })
    .await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    assert_eq!(app.client.approve(&id).await.status, 202);
    app.ledger.wait_begun().await;
    set(&app, &id, &format!("lease_until = {LONG_AGO}")).await;
    app.client.becomes(&id, "interrupted").await;
    app.scene.says("Nobody knows.");
    assert_eq!(app.client.go_on(&thread).await.text(), "Nobody knows.");

    app.ledger.go.add_permits(1);
    let call = app.client.becomes(&id, "succeeded").await;
    assert_eq!(call["output"], json!({ "waited": "10" }));
    app.scene.says("So it did.");
    assert_eq!(app.client.say(&thread, "and?").await.text(), "So it did.");
    let told = app.rows.all("SELECT kind FROM sent_answers ORDER BY n").await;
    assert_eq!(told, [json!({ "kind": "answer" }), json!({ "kind": "note" })]);
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}

#[tokio::test]
async fn a_tool_that_takes_longer_than_a_lease_is_not_taken_for_dead() {
    let app = Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3);
        config.approval.wait = Duration::ZERO;
    })
    .await;
    let (_, id) = app.held("wait_for_me", "10").await;
    assert_eq!(app.client.approve(&id).await.status, 202);
    app.ledger.wait_begun().await;
    let lease = async || app.rows.all("SELECT lease_until, started_at FROM tool_calls").await[0].clone();
    let renewed = async || {
        let row = lease().await;
        let kept = row["lease_until"].as_i64()? - row["started_at"].as_i64()?;
        (kept > 6_000_000).then_some(())
    };
    eventually("the lease is renewed after the first would have been over", renewed).await;
    assert_eq!(app.client.call(&id).await["state"], "executing");
    app.ledger.go.add_permits(1);
    app.client.becomes(&id, "succeeded").await;
}

#[tokio::test]
async fn a_turn_whose_lease_is_over_is_closed_and_can_be_gone_on_with() {
    let app = Embedded::with(|config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.lease = Duration::from_secs(3600);
    })
    .await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "dawdle", &json!({ "note": "1" }))]);
    let begun = async {
        app.ledger.wait_begun().await;
        let lapsed = format!("UPDATE runs SET lease_until = {LONG_AGO}");
        assert_eq!(app.rows.change(&lapsed).await, Ok(1));
        let closed = async || app.rows.all("SELECT status, error_code FROM runs").await.pop();
        let closed = async || closed().await.filter(|run| run["status"] == "failed");
        let closed = eventually("the turn is closed", closed).await;
        assert_eq!(closed["error_code"], "interrupted");
        // The tool is alive: its lease is its own.
        assert_eq!(app.rows.count("tool_calls WHERE state = 'executing'").await, 1);
        app.ledger.go.add_permits(1);
    };
    let (turn, ()) = tokio::join!(app.client.say(&thread, "dawdle"), begun);
    assert!(turn.one('3').as_str().unwrap().starts_with("interrupted: "), "{}", turn.raw);
    app.scene.says("Here I am.");
    assert_eq!(app.client.go_on(&thread).await.text(), "Here I am.");
    assert_eq!(app.ledger.lines(), ["dawdle 1"]);
}
