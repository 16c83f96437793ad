//! Cancelling calls and runs: a call that has not started never runs, a running call is abandoned, and the
//! record states it.

use futures::future::join_all;
use holdpoint::config::Config;
use holdpoint_testkit::{Client, Embedded, JsonFields, Rows, UNKNOWN, call, eventually, postgres};
use serde_json::{Value, json};
use std::time::Duration;

/// A time at which no sweeper begins an approved call within a test.
const IN_A_WHILE: &str = "created_at + 1000000000";
/// A time that no test reaches.
const FAR: i64 = i64::MAX / 2;
/// The text that the model reads of a withdrawn call.
const CANCELLED: &str = "Cancelled, the tool did not run.";

async fn cancel_call(client: &Client, id: &str) -> holdpoint_testkit::Answer {
    client.post(&format!("/tool_calls/{id}/cancel"), &Value::Null).await
}

async fn cancel_run(client: &Client, id: &str) -> holdpoint_testkit::Answer {
    client.post(&format!("/runs/{id}/cancel"), &Value::Null).await
}

/// A server whose leases are too long to be renewed within a test, except by a process that is notified.
async fn patient() -> Embedded {
    Embedded::with(|config| config.approval.lease = Duration::from_secs(3600)).await
}

/// The types of the events of a call, without the records of refused decisions.
async fn events_of(app: &Embedded, id: &str) -> Vec<String> {
    let sql = format!(
        "SELECT type FROM events WHERE tool_call_id = '{id}' AND type <> 'tool.decision_refused'
         ORDER BY event_id"
    );
    let found = app.rows.all(&sql).await;
    found.iter().map(|event| event.text("type").to_owned()).collect()
}

#[tokio::test]
async fn a_pending_call_that_is_cancelled_never_runs_and_the_model_reads_that() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    let cancelled = cancel_call(&app.client, &id).await;
    let expected = json!({ "success": true, "tool_call_id": id, "state": "cancelled" });
    assert_eq!((cancelled.status, &cancelled.body), (200, &expected));
    let shown = app.client.call(&id).await;
    assert_eq!((&shown["state"], &shown["validated"]), (&json!("cancelled"), &json!(false)));
    assert_eq!(
        (&shown["decision"]["decision"], &shown["decision"]["by"]),
        (&json!("cancel"), &json!("user:local"))
    );

    let again = cancel_call(&app.client, &id).await;
    assert_eq!((again.status, &again.body), (200, &expected));
    for late in [app.client.approve(&id).await, app.client.reject(&id).await] {
        late.failed_with(409, "cancelled");
        assert_eq!(late.body["error"]["details"]["decision"]["decision"], "cancel");
    }
    app.scene.answers("As you like.");
    let reported = app.client.resume(&thread).await;
    assert_eq!(*reported.one('8'), json!([{ "toolCallId": id, "validated": "cancelled" }]));
    assert_eq!(reported.one('a')["result"], json!({ "error": CANCELLED }));
    assert_eq!(reported.text(), "As you like.");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    assert_eq!(events_of(&app, &id).await, ["tool.called", "tool.requires_approval", "tool.cancelled"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_call_that_is_approved_and_not_started_can_still_be_cancelled() {
    let app = Embedded::start().await;
    let (_, id) = app.held("pay", "10").await;
    app.commit_yes(&id, IN_A_WHILE, "expires_at").await;
    let cancelled = cancel_call(&app.client, &id).await;
    cancelled.has(200, "state", "cancelled");
    let shown = app.client.call(&id).await;
    assert_eq!(
        (&shown["state"], &shown["validated"]),
        (&json!("cancelled"), &json!(true)),
        "the approval is kept"
    );
    assert_eq!(shown["decision"]["decision"], "approve");
    let late = app.client.approve(&id).await;
    late.failed_with(409, "cancelled");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    assert_eq!(events_of(&app, &id).await.last().unwrap(), "tool.cancelled");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_cancelled_running_call_is_abandoned_and_its_outcome_is_unknown() {
    let app = patient().await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    let cancel = async {
        app.ledger.wait_started().await;
        cancel_call(&app.client, &id).await
    };
    let (decided, cancelled) = tokio::join!(app.client.approve(&id), cancel);
    let expected = json!({ "success": false, "tool_call_id": id, "state": "interrupted" });
    assert_eq!((cancelled.status, &cancelled.body), (200, &expected));
    decided.has(200, "state", "interrupted");
    assert_eq!(decided.body["result"], UNKNOWN);
    app.scene.answers("I see.");
    assert_eq!(app.client.resume(&thread).await.text(), "I see.");
    let late = cancel_call(&app.client, &id).await;
    late.failed_with(409, "already_decided");
    assert_eq!(late.body["error"]["details"]["state"], "interrupted");
    app.ledger.release.add_permits(1);
    let settled = app.client.becomes(&id, "succeeded").await;
    assert_eq!(settled["output"], json!({ "waited": "10" }), "what it returns late is its outcome");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_settled_call_cannot_be_cancelled_and_a_missing_call_is_not_found() {
    let app = Embedded::start().await;
    let (_, ran) = app.held("pay", "1").await;
    app.client.approve(&ran).await;
    let late = cancel_call(&app.client, &ran).await;
    late.failed_with(409, "already_decided");
    assert_eq!(late.body["error"]["details"]["state"], "succeeded");

    let (_, overdue) = app.held("pay", "2").await;
    let end = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{overdue}'");
    assert_eq!(app.rows.change(&end).await, Ok(1));
    let late = cancel_call(&app.client, &overdue).await;
    late.failed_with(409, "expired");
    assert_eq!(app.client.call(&overdue).await["state"], "expired");

    let absent = cancel_call(&app.client, "01890000-0000-7000-8000-000000000000").await;
    let no_id = cancel_call(&app.client, "nothing").await;
    assert_eq!((absent.status, no_id.status), (404, 404));
    assert_eq!(absent.body, no_id.body);
    let run = cancel_run(&app.client, "01890000-0000-7000-8000-000000000000").await;
    assert_eq!((run.status, run.body), (404, absent.body));
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_cancelled_ungated_call_is_abandoned_and_the_turn_continues() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("a", "dawdle", &json!({ "note": "1" }))]).answers("Never mind.");
    let cancel = async {
        app.ledger.wait_started().await;
        let calls = app.rows.all("SELECT tool_call_id FROM tool_calls").await;
        cancel_call(&app.client, calls[0].text("tool_call_id")).await
    };
    let (turn, cancelled) = tokio::join!(app.client.send_message(&thread, "dawdle"), cancel);
    cancelled.has(200, "state", "interrupted");
    assert_eq!(turn.one('a')["result"], json!({ "error": UNKNOWN }));
    assert_eq!(turn.text(), "Never mind.");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_run_that_is_cancelled_mid_text_stops_there_and_keeps_the_text() {
    let app = patient().await;
    let thread = app.client.thread().await;
    app.scene.answers("Half an answer.").answers("New words.");
    let gate = app.scene.gate();
    gate.add_permits(1);
    let cancel = async {
        let half = async || {
            let found = app.rows.all("SELECT run_id FROM runs WHERE status = 'running'").await;
            found.first().map(|run| run.text("run_id").to_owned())
        };
        let run = eventually("the turn runs", half).await;
        eventually("the model speaks", async || (gate.available_permits() == 0).then_some(())).await;
        (cancel_run(&app.client, &run).await, run)
    };
    let (turn, (cancelled, run)) = tokio::join!(app.client.send_message(&thread, "hi"), cancel);
    cancelled.has(200, "status", "cancelled");
    assert_eq!(cancelled.body["pending"], json!([]));
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0d", "Half an answer."), "{}", turn.raw);
    assert_eq!(turn.one('d')["finishReason"], "other");
    let answer = app.client.messages(&thread).await.pop().unwrap();
    assert_eq!(answer["status"], "interrupted");
    assert_eq!(answer["parts"][1]["text"], "Half an answer.");
    let shown = app.client.get(&format!("/runs/{run}")).await.body;
    assert_eq!(shown, cancelled.body);
    assert!(shown["finished_at"].is_string());
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body.get("active_run_id"), None);

    let again = cancel_run(&app.client, &run).await;
    assert_eq!((again.status, &again.body), (200, &cancelled.body));
    gate.add_permits(2);
    assert_eq!(app.client.resume(&thread).await.refused(), (409, "nothing_to_continue".to_owned()));
    assert_eq!(app.client.send_message(&thread, "and now?").await.text(), "New words.");
    let events = app.rows.all("SELECT type FROM events WHERE type LIKE 'run.%' ORDER BY event_id").await;
    let types: Vec<&str> = events.iter().map(|event| event.text("type")).collect();
    assert_eq!(types, ["run.started", "run.cancelled", "run.started", "run.completed"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_waiting_run_is_cancelled_with_its_calls() {
    let app = Embedded::start().await;
    let thread = app.client.thread().await;
    let three = ["1", "2", "3"].map(|note| call(note, "pay", &json!({ "note": note })));
    app.scene.calls(&three);
    let turn = app.client.send_message(&thread, "pay").await;
    let (ids, run) = (turn.pending(), turn.headers["x-run-id"].to_str().unwrap().to_owned());
    let waits = app.client.get(&format!("/runs/{run}")).await.body;
    assert_eq!((&waits["status"], &waits["pending"]), (&json!("waiting"), &json!(ids)));
    assert_eq!((&waits["thread_id"], &waits["session_id"]), (&json!(thread), &json!(thread)));
    assert_eq!(app.client.approve(&ids[0]).await.body["state"], "succeeded");
    app.commit_yes(&ids[2], IN_A_WHILE, "expires_at").await;

    let cancelled = cancel_run(&app.client, &run).await;
    cancelled.has(200, "status", "cancelled");
    assert_eq!(app.client.call(&ids[0]).await["state"], "succeeded", "what ran, ran");
    assert_eq!(app.client.approve(&ids[1]).await.code(), "cancelled");
    assert_eq!(app.client.approve(&ids[2]).await.code(), "cancelled");
    app.client.resume(&thread).await.assert_states_only();
    app.scene.answers("Good.");
    assert_eq!(app.client.send_message(&thread, "and?").await.text(), "Good.");
    assert_eq!(app.ledger.lines(), ["pay 1"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_waiting_run_that_a_new_message_passed_can_be_cancelled() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.scene.answers("Something else.");
    app.client.send_message(&thread, "and this?").await;
    let newer = app.hold_in(&thread, "pay", "11").await;
    let run = app.client.run_of(&id).await;
    let cancelled = cancel_run(&app.client, &run).await;
    cancelled.has(200, "status", "cancelled");
    assert_eq!(app.client.call(&id).await["state"], "cancelled");
    assert_eq!(app.client.call(&newer).await["state"], "pending", "it is another run's");
    let runs = app.rows.all("SELECT run_id FROM runs WHERE status = 'completed'").await;
    let late = cancel_run(&app.client, runs[0].text("run_id")).await;
    late.failed_with(409, "run_not_waiting");
    assert_eq!(late.body["error"]["details"]["state"], "completed");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_turn_cancelled_while_a_tool_runs_lets_the_tool_settle_and_holds_no_call() {
    let app = Embedded::with(|config| config.tools.cancel_grace = Duration::from_secs(3600)).await;
    let thread = app.client.thread().await;
    let two = [call("a", "dawdle", &json!({ "note": "1" })), call("b", "pay", &json!({ "note": "2" }))];
    app.scene.calls(&two);
    let cancel = async {
        app.ledger.wait_started().await;
        let runs = app.rows.all("SELECT run_id FROM runs").await;
        cancel_run(&app.client, runs[0].text("run_id")).await
    };
    let (turn, cancelled) = tokio::join!(app.client.send_message(&thread, "both"), cancel);
    cancelled.has(200, "status", "cancelled");
    assert_eq!(turn.pending(), Vec::<String>::new(), "{}", turn.raw);
    assert_eq!(turn.one('d')["finishReason"], "other");
    assert_eq!(app.rows.count("tool_calls WHERE state = 'cancelled' AND held").await, 1);
    assert_eq!(app.rows.count("tool_calls WHERE state = 'executing' AND NOT held").await, 1);

    app.ledger.release.add_permits(1);
    let settled = async || (app.rows.count("tool_calls WHERE state = 'succeeded'").await == 1).then_some(());
    eventually("the tool settles", settled).await;
    app.scene.answers("Fine.");
    assert_eq!(app.client.send_message(&thread, "well?").await.text(), "Fine.");
    assert_eq!(app.ledger.lines(), ["dawdle 1"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_cancel_request_during_the_last_step_cancels_the_calls_it_would_hold() {
    let app = patient().await;
    let thread = app.client.thread().await;
    let two = [call("a", "dawdle", &json!({ "note": "1" })), call("b", "pay", &json!({ "note": "2" }))];
    app.scene.calls(&two);
    let wish = async {
        app.ledger.wait_started().await;
        // The row as another process writes it.
        assert_eq!(app.rows.change("UPDATE runs SET cancel_requested_at = created_at").await, Ok(1));
        app.ledger.release.add_permits(1);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "both"), wish);
    assert_eq!(turn.one('d')["finishReason"], "other");
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    assert_eq!(app.client.call(id).await["state"], "cancelled");
    let runs = app.rows.all("SELECT status FROM runs").await;
    assert_eq!(runs, [json!({ "status": "cancelled" })]);
    app.scene.answers("Fine.");
    assert_eq!(app.client.send_message(&thread, "well?").await.text(), "Fine.");
    assert_eq!(app.ledger.lines(), ["dawdle 1"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn on_postgres_a_turn_that_ends_before_its_process_sees_the_cancel_request_is_completed() {
    let url = postgres().await;
    let change = |config: &mut Config| {
        config.database.url = url.clone().into();
        config.approval.lease = Duration::from_secs(3600);
    };
    let (runs, other) = (Embedded::with(change).await, Embedded::with(change).await);
    let thread = runs.client.thread().await;
    runs.scene.answers("All is said.");
    let gate = runs.scene.gate();
    let cancel = async {
        let found = async || runs.rows.all("SELECT run_id FROM runs WHERE status = 'running'").await.pop();
        let run = eventually("the turn runs", found).await;
        cancel_run(&other.client, run.text("run_id")).await
    };
    let go = async {
        let wish = async || (runs.rows.count("runs WHERE cancel_requested_at > 0").await == 1).then_some(());
        eventually("the wish is written", wish).await;
        gate.add_permits(2);
    };
    let (turn, late, ()) = tokio::join!(runs.client.send_message(&thread, "hi"), cancel, go);
    late.failed_with(409, "run_not_waiting");
    assert_eq!(late.body["error"]["details"]["state"], "completed");
    assert_eq!((turn.text().as_str(), turn.codes().as_str()), ("All is said.", "f0ed"));
}

#[tokio::test]
async fn on_postgres_a_cancel_acts_on_the_state_after_the_thread_lock_is_acquired() {
    let url = postgres().await;
    let beside = Rows::open(&url).await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let lock = async || assert!(app.rows.change("BEGIN; SELECT 1 FROM threads FOR UPDATE").await.is_ok());

    let (_, id) = app.held("pay", "10").await;
    lock().await;
    let meanwhile = async {
        beside.wait_for_lock_waiter().await;
        app.commit_yes(&id, IN_A_WHILE, "expires_at").await;
        app.rows.change("COMMIT").await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(cancel_call(&app.client, &id), meanwhile);
    cancelled.has(200, "state", "cancelled");

    let (_, id) = app.held("pay", "11").await;
    let run = app.client.run_of(&id).await;
    let turn = format!(
        "UPDATE runs SET status = 'running', owner = 'x', lease_until = {FAR} WHERE run_id = '{run}'"
    );
    assert_eq!(app.rows.change(&turn).await, Ok(1));
    lock().await;
    let meanwhile = async {
        beside.wait_for_lock_waiter().await;
        let ends = format!(
            "UPDATE runs SET status = 'waiting', owner = NULL, lease_until = NULL WHERE run_id = '{run}'; COMMIT"
        );
        app.rows.change(&ends).await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(cancel_run(&app.client, &run), meanwhile);
    cancelled.has(200, "status", "cancelled");
    assert_eq!(app.client.call(&id).await["state"], "cancelled");
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn deleting_a_thread_cancels_approved_calls_that_have_not_started() {
    let app = Embedded::start().await;
    let (thread, id) = app.held("pay", "10").await;
    app.commit_yes(&id, IN_A_WHILE, "expires_at").await;
    app.client.delete(&format!("/threads/{thread}")).await.has_status(204);
    assert_eq!(app.rows.count("tool_calls WHERE state = 'cancelled' AND validated").await, 1);
    app.client.approve(&id).await.has_status(404);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn a_failed_run_with_a_held_call_can_be_cancelled() {
    let app = Embedded::with(|config| config.approval.sweep = Duration::from_millis(20)).await;
    let thread = app.client.thread().await;
    let two = [call("a", "dawdle", &json!({ "note": "1" })), call("b", "pay", &json!({ "note": "2" }))];
    app.scene.calls(&two);
    let broken = async {
        app.ledger.wait_started().await;
        assert_eq!(app.rows.change("UPDATE runs SET lease_until = 1000000").await, Ok(1));
        let failed = async || app.rows.all("SELECT run_id FROM runs WHERE status = 'failed'").await.pop();
        let failed = eventually("the turn is closed", failed).await;
        app.ledger.release.add_permits(1);
        failed.text("run_id").to_owned()
    };
    let (_, run) = tokio::join!(app.client.send_message(&thread, "both"), broken);
    let failed = app.client.get(&format!("/runs/{run}")).await.body;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("interrupted")));
    let [held] = &failed.list("pending")[..] else { panic!("{failed}") };

    let cancelled = cancel_run(&app.client, &run).await;
    cancelled.has(200, "status", "cancelled");
    assert_eq!((&cancelled.body["pending"], cancelled.body.get("error")), (&json!([]), None));
    assert_eq!(app.client.approve(held.as_str().unwrap()).await.code(), "cancelled");
    app.client.resume(&thread).await.assert_states_only();
    app.scene.answers("Good.");
    assert_eq!(app.client.send_message(&thread, "and?").await.text(), "Good.");
    assert_eq!(app.ledger.lines(), ["dawdle 1"]);
    app.rows.assert_counted().await;
}

#[tokio::test]
async fn of_a_concurrent_approval_and_cancel_one_wins_for_each_call() {
    const CALLS: usize = 16;
    let app = Embedded::with(|config| config.limits.calls_per_step = CALLS).await;
    let thread = app.client.thread().await;
    let all: Vec<_> =
        (0..CALLS).map(|n| call(&format!("p{n}"), "pay", &json!({ "note": n.to_string() }))).collect();
    app.scene.calls(&all);
    let ids = app.client.send_message(&thread, "pay all").await.pending();
    let both = ids.iter().enumerate().map(|(n, id)| {
        let client = &app.client;
        async move {
            // The order of the two requests alternates.
            if n.is_multiple_of(2) {
                tokio::join!(client.approve(id), cancel_call(client, id))
            } else {
                let (cancelled, approved) = tokio::join!(cancel_call(client, id), client.approve(id));
                (approved, cancelled)
            }
        }
    });
    let answers = join_all(both).await;
    let mut ran = 0;
    for (id, (approved, cancelled)) in ids.iter().zip(&answers) {
        let state = app.client.call(id).await.text("state").to_owned();
        let reported = (approved.status, cancelled.status, state.as_str());
        match reported {
            // The cancel came first, or between the approval and the claim.
            (409, 200, "cancelled") => assert_eq!(approved.code(), "cancelled"),
            (200, 200, "cancelled") => assert_eq!(approved.body["state"], "cancelled"),
            // The cancel came after the call had settled.
            (200, 409, "succeeded") => assert_eq!(cancelled.code(), "already_decided"),
            // The cancel came while the tool ran.
            (200, 200, "succeeded" | "interrupted") => assert_eq!(cancelled.body["state"], state.as_str()),
            other => panic!("{other:?}"),
        }
        ran += usize::from(state == "succeeded" || state == "interrupted");
    }
    assert!(app.ledger.lines().len() <= ran, "what was cancelled did not run");
    let succeeded = app.rows.count("tool_calls WHERE state = 'succeeded'").await;
    assert!(app.ledger.lines().len() >= usize::try_from(succeeded).unwrap());
    assert_eq!(app.rows.count("decisions").await, i64::try_from(CALLS).unwrap(), "one decision each");
    app.rows.assert_counted().await;
}
