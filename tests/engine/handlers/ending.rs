//! Cancels, expiry and shutdown while a handler decides.

use super::{desk, office, pays, words};
use holdpoint::handlers::HandlerAnswer;
use holdpoint_testkit::runs::{last_words, run_becomes};
use holdpoint_testkit::{Embedded, eventually, probes};
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn cancelling_the_run_drops_the_question() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Never said.");
    let stops = async {
        let question = questions.next().await;
        let (id, run) = (question.id(), app.client.run_of(&question.id()).await);
        let stopped = app.client.post(&format!("/runs/{run}/cancel"), &Value::Null).await;
        stopped.has(200, "status", "cancelled");
        question.until_over().await;
        id
    };
    let (turn, id) = tokio::join!(app.client.send_message(&thread, "pay"), stops);
    assert_eq!((turn.codes().as_str(), words(&turn)), ("fbc98ed", vec!["pending"]), "{}", turn.raw);
    let call = app.client.call(&id).await;
    assert_eq!((&call["state"], &call["decision"]["by"]), (&json!("cancelled"), &json!("user:local")));
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn cancelling_the_call_drops_the_question_and_resumes_the_turn() {
    let (app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Then not.");
    let withdraws = async {
        let question = questions.next().await;
        let path = format!("/tool_calls/{}/cancel", question.id());
        app.client.post(&path, &Value::Null).await.has_status(200);
        question.until_over().await;
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), withdraws);
    assert_eq!((words(&turn), turn.text().as_str()), (vec!["pending", "cancelled"], "Then not."));
}

#[tokio::test]
async fn a_call_expires_while_a_handler_decides() {
    let (desk, questions) = desk();
    let change = |config: &mut holdpoint::config::Config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.pending_ttl = Duration::from_millis(200);
    };
    let app = Embedded::with_handler(desk, change).await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Too late.");
    let thinks = async { questions.next().await.until_over().await };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), thinks);
    assert_eq!((words(&turn), turn.text().as_str()), (vec!["pending", "expired"], "Too late."));
}

#[tokio::test]
async fn a_stopping_server_drops_the_question_and_the_call_stays_pending_for_the_next_server() {
    let (mut app, questions) = office().await;
    let thread = app.client.thread().await;
    pays(&app, &["1", "2"], "Never said here.");
    let client = app.client.clone();
    let stops = async {
        let (first, second) = (questions.next().await, questions.next().await);
        let ids = [first.id(), second.id()];
        first.answer(HandlerAnswer::denied("no"));
        client.becomes(&ids[0], "rejected").await;
        app.end().await;
        second.until_over().await;
        ids
    };
    let (turn, ids) = tokio::join!(client.send_message(&thread, "pay"), stops);
    assert_eq!(turn.codes(), "fbcbc998ea8ed", "{}", turn.raw);
    assert_eq!(turn.one('d')["finishReason"], "tool-calls");
    let rows = app.rows.all("SELECT status, owner FROM runs").await;
    assert_eq!(rows, [json!({ "status": "waiting", "owner": null })]);

    app.scene.forget();
    let tools = probes(&app.ledger);
    let app = app.redeploy(tools).await;
    app.scene.answers("Gone on elsewhere.");
    assert_eq!(app.client.call(&ids[1]).await["state"], "pending");
    assert_eq!(app.client.approve(&ids[1]).await.body["state"], "succeeded");
    assert_eq!(app.client.resume(&thread).await.text(), "Gone on elsewhere.");
}

#[tokio::test]
async fn the_lease_is_renewed_while_a_handler_decides() {
    let (desk, questions) = desk();
    let change = |config: &mut holdpoint::config::Config| {
        config.approval.lease = Duration::from_secs(6);
        config.approval.sweep = Duration::from_millis(20);
    };
    let app = Embedded::with_handler(desk, change).await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "Paid.");
    let thinks = async {
        let question = questions.next().await;
        let run = app.client.run_of(&question.id()).await;
        let lease = async || {
            let rows = app.rows.all(&format!("SELECT lease_until FROM runs WHERE run_id = '{run}'")).await;
            rows[0]["lease_until"].as_i64().unwrap()
        };
        let first = lease().await;
        let renewed = async || (lease().await > first + 1_000_000).then_some(());
        eventually("the lease is renewed", renewed).await;
        question.answer(HandlerAnswer::approved());
        run
    };
    let (turn, run) = tokio::join!(app.client.send_message(&thread, "pay"), thinks);
    assert_eq!(turn.text(), "Paid.");
    run_becomes(&app.client, &run, "completed").await;
}

#[tokio::test]
async fn the_turn_waits_for_a_slow_call_that_a_handler_approved_and_a_cancel_ends_it() {
    let (app, questions) = office().await;
    for cancelled in [false, true] {
        let thread = app.client.thread().await;
        let note = json!({ "note": "10" });
        app.scene.calls(&[holdpoint_testkit::call("1", "wait_for_me", &note)]).answers("Waited.");
        let decides = async {
            let id = questions.answer(HandlerAnswer::approved()).await;
            app.client.becomes(&id, "executing").await;
            if cancelled {
                let path = format!("/tool_calls/{id}/cancel");
                assert_eq!(app.client.post(&path, &Value::Null).await.body["state"], "interrupted");
            } else {
                app.ledger.release.add_permits(1);
            }
        };
        let (turn, ()) = tokio::join!(app.client.send_message(&thread, "go"), decides);
        let word = if cancelled { "interrupted" } else { "approved" };
        assert_eq!((words(&turn), turn.text().as_str()), (vec!["pending", word], "Waited."), "{}", turn.raw);
    }
}

#[tokio::test]
async fn the_server_resumes_a_turn_that_died_after_a_handlers_approval() {
    let (desk, questions) = desk();
    let sweep = Duration::from_millis(20);
    let app = Embedded::with_handler(desk, |config| config.approval.sweep = sweep).await;
    let thread = app.client.thread().await;
    app.scene
        .calls(&[holdpoint_testkit::call("1", "wait_for_me", &json!({ "note": "10" }))])
        .answers("Waited.");
    let _response = app.client.begin(&thread, &json!({ "content": "go" })).await;
    let id = questions.answer(HandlerAnswer::approved()).await;
    app.client.becomes(&id, "executing").await;
    // Simulates the death of the turn's process. The tool keeps running.
    let closed = async || {
        app.rows.change("UPDATE runs SET lease_until = 1 WHERE status = 'running'").await.unwrap();
        let runs = app.rows.all("SELECT status FROM runs").await;
        (runs[0]["status"] == "failed").then_some(())
    };
    eventually("the turn is closed", closed).await;
    app.ledger.release.add_permits(1);
    let run = app.client.run_of(&id).await;
    run_becomes(&app.client, &run, "completed").await;
    assert_eq!(last_words(&app.client, &thread).await, "Waited.");
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}
