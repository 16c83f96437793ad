//! A run never waits for nothing: the server resumes it after its last held call has expired or was cancelled.

use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, JsonFields, call, eventually};
use serde_json::{Value, json};
use std::time::Duration;

/// A server that resumes runs after an expiry, as every server does unless its configuration says otherwise.
async fn resuming() -> Embedded {
    assert!(Config::default().approval.resume_on_expiry);
    Embedded::with(|config: &mut Config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.resume_on_expiry = true;
    })
    .await
}

/// Ends the time to decide this call.
async fn expires(app: &Embedded, id: &str) {
    let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&over).await, Ok(1));
    app.client.becomes(id, "expired").await;
}

/// What the model read last.
fn read_last(app: &Embedded) -> String {
    format!("{:?}", app.scene.requests().last().unwrap().messages.last().unwrap())
}

/// Waits until all events have a number, and returns how often the run was resumed.
async fn resumes(app: &Embedded) -> i64 {
    app.rows.count("events WHERE type = 'run.resumed'").await
}

#[tokio::test]
async fn a_run_whose_last_held_call_expires_goes_on_and_the_model_reads_it() {
    let app = resuming().await;
    let (_, id) = app.held("pay", "1").await;
    app.scene.answers("Nobody answered.");
    expires(&app, &id).await;
    app.client.run_becomes(&app.client.run_of(&id).await, "completed").await;
    assert!(read_last(&app).contains("Nobody approved this in time"), "{}", read_last(&app));
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn a_run_waits_for_the_other_held_call_of_an_expired_one() {
    let app = resuming().await;
    let thread = app.client.thread().await;
    let (first, second) = (json!({ "note": "1" }), json!({ "note": "2" }));
    app.scene.calls(&[call("a", "pay", &first), call("b", "pay", &second)]);
    let pending = app.client.send_message(&thread, "please").await.pending();
    expires(&app, &pending[0]).await;
    let run = app.client.run_of(&pending[0]).await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
    app.scene.answers("One of two.");
    expires(&app, &pending[1]).await;
    app.client.run_becomes(&run, "completed").await;
}

#[tokio::test]
async fn the_same_call_after_an_expiry_asks_nobody_and_another_one_is_held_and_not_resumed_again() {
    let app = resuming().await;
    let (_, id) = app.held("pay", "1").await;
    let (same, other) = (json!({ "note": "1" }), json!({ "note": "2" }));
    app.scene.calls(&[call("again", "pay", &same)]);
    app.scene.calls(&[call("other", "pay", &other)]);
    expires(&app, &id).await;
    let held = || async {
        let found = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE state = 'pending'").await;
        found.first().map(|row| row.text("tool_call_id").to_owned())
    };
    let second = eventually("the other call is held", held).await;
    let repeated =
        app.rows.all("SELECT state, held, result FROM tool_calls WHERE wire_call_id = 'again'").await;
    assert_eq!(repeated[0]["state"], "cancelled");
    assert!(repeated[0].text("result").contains("nobody approved it"), "{repeated:?}");
    expires(&app, &second).await;
    // A look of the resumer follows each expiry of this process.
    let (_, third) = app.held("pay", "3").await;
    app.scene.answers("Third.");
    expires(&app, &third).await;
    app.client.run_becomes(&app.client.run_of(&third).await, "completed").await;
    let run = app.client.run_of(&second).await;
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
    assert_eq!(resumes(&app).await, 2);
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn after_a_decision_an_expiry_resumes_the_run_once_more() {
    let app = resuming().await;
    let (_, first) = app.held("pay", "1").await;
    app.scene.calls(&[call("b", "pay", &json!({ "note": "2" }))]);
    expires(&app, &first).await;
    let pending = || async {
        let found = app.rows.all("SELECT tool_call_id FROM tool_calls WHERE state = 'pending'").await;
        found.first().map(|row| row.text("tool_call_id").to_owned())
    };
    let second = eventually("the second call is held", pending).await;
    app.scene.calls(&[call("c", "pay", &json!({ "note": "3" }))]);
    let yes = json!({ "toolCallId": second, "isValidated": true, "resume": true });
    assert_eq!(app.client.validate(&yes).await.body["state"], "succeeded");
    let third = eventually("the third call is held", pending).await;
    app.scene.answers("Done.");
    expires(&app, &third).await;
    app.client.run_becomes(&app.client.run_of(&third).await, "completed").await;
    assert_eq!(app.ledger.lines(), ["pay 2"]);
}

#[tokio::test]
async fn without_the_key_an_expired_call_leaves_its_run_to_its_user() {
    let app = Embedded::with(|config: &mut Config| {
        config.approval.sweep = Duration::from_millis(20);
        config.approval.resume_on_expiry = false;
    })
    .await;
    let (thread, id) = app.held("pay", "1").await;
    let run = app.client.run_of(&id).await;
    expires(&app, &id).await;
    let column = format!("SELECT server_resumes FROM runs WHERE run_id = '{run}'");
    assert!([json!(false), json!(0)].contains(&app.rows.all(&column).await[0]["server_resumes"]));
    assert_eq!(app.client.get(&format!("/runs/{run}")).await.body["status"], "waiting");
    app.scene.answers("Nobody answered.");
    assert_eq!(app.client.turn(&thread, &json!({})).await.text(), "Nobody answered.");
}

#[tokio::test]
async fn a_call_that_its_user_cancels_lets_the_run_go_on() {
    let app = resuming().await;
    let (_, id) = app.held("pay", "1").await;
    app.scene.answers("As you like.");
    let cancelled = app.client.post(&format!("/tool_calls/{id}/cancel"), &json!({})).await;
    assert_eq!(cancelled.body["state"], "cancelled", "{}", cancelled.body);
    app.client.run_becomes(&app.client.run_of(&id).await, "completed").await;
    assert!(read_last(&app).contains("Cancelled, the tool did not run."), "{}", read_last(&app));
}

#[tokio::test]
async fn a_cancelled_run_and_an_edited_message_resume_nothing() {
    let app = resuming().await;
    let (_, id) = app.held("pay", "1").await;
    let run = app.client.run_of(&id).await;
    assert_eq!(app.client.post(&format!("/runs/{run}/cancel"), &json!({})).await.body["status"], "cancelled");
    let column = format!("SELECT server_resumes FROM runs WHERE run_id = '{run}'");
    assert!([json!(false), json!(0)].contains(&app.rows.all(&column).await[0]["server_resumes"]));
    assert_eq!(resumes(&app).await, 0);
}

#[tokio::test]
async fn a_run_is_resumed_on_request_once_none_of_its_calls_is_open() {
    let app = resuming().await;
    let (_, id) = app.held("pay", "1").await;
    let run = app.client.run_of(&id).await;
    let resume = format!("/runs/{run}/resume");
    let open = app.client.post(&resume, &json!({})).await;
    open.failed_with(409, "awaiting_approval");
    let rejected = app.client.reject(&id).await;
    assert_eq!(rejected.body["waitsForPage"], true);
    app.scene.answers("As you like.");
    let resumed = app.client.post(&resume, &json!({})).await;
    resumed.has(202, "status", "running");
    app.client.run_becomes(&run, "completed").await;
    let over = app.client.post(&resume, &json!({})).await;
    over.failed_with(409, "run_not_waiting");
}

#[tokio::test]
async fn a_decision_says_whether_the_run_waits_for_the_page() {
    let app = resuming().await;
    for (resume, waits) in [(json!(true), false), (json!(false), true), (Value::Null, true)] {
        let (_, id) = app.held("pay", "1").await;
        app.scene.answers("Paid.");
        let decided =
            app.client.validate(&json!({ "toolCallId": id, "isValidated": true, "resume": resume })).await;
        assert_eq!(decided.body["waitsForPage"], waits, "{}", decided.body);
        if !waits {
            app.client.run_becomes(&app.client.run_of(&id).await, "completed").await;
        }
        app.scene.forget();
        let again = app.client.approve(&id).await;
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
    }
}
