//! `approvals resolve` at a server.

use super::Approver;
use holdpoint::config::Config;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

async fn office() -> Embedded {
    let mut app = Embedded::with(|config: &mut Config| {
        with_tokens(config);
        config.auth.operator_roles = vec!["admin".to_owned()];
    })
    .await;
    app.client = app.client.as_user("acme", "alice", &[]);
    app
}

/// The id of a call of `break` with an unknown outcome.
async fn interrupted(app: &Embedded, note: &str) -> String {
    let (_, id) = app.held("break", note).await;
    app.client.approve(&id).await;
    app.client.becomes(&id, "interrupted").await;
    id
}

#[tokio::test]
async fn an_operator_records_the_outcome_of_an_interrupted_call_once() {
    let app = office().await;
    let oscar = Approver::named(&app, "oscar", &["admin"]);
    let id = interrupted(&app, "1").await;
    let args = ["resolve", &id, "--succeeded", r#"{"n":12345678901234567}"#, "--reason", "I looked."];
    let stdout = oscar.run(&args).await.stdout_of_success();
    assert_eq!(stdout, format!("{id} is succeeded; the model reads that an operator established it\n"));
    let call = app.client.call(&id).await;
    assert_eq!(
        (&call["state"], &call["output"]["n"]),
        (&json!("succeeded"), &json!(12_345_678_901_234_567_u64))
    );
    assert!(call.text("result").ends_with("Reason: I looked."), "{call}");
    let late = oscar.run(&["resolve", &id, "--failed", "It did not run."]).await;
    late.fails(3, "");

    let other = interrupted(&app, "2").await;
    let stdout =
        oscar.run(&["resolve", &other, "--failed", "It did not run.", "--json"]).await.stdout_of_success();
    let stdout: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(stdout, json!({ "tool_call_id": other, "state": "failed" }));
}

#[tokio::test]
async fn only_an_operator_resolves_and_only_an_interrupted_call() {
    let app = office().await;
    let id = interrupted(&app, "1").await;
    let alice = Approver::named(&app, "alice", &[]);
    alice.run(&["resolve", &id, "--succeeded"]).await.fails(1, "");
    let oscar = Approver::named(&app, "oscar", &["admin"]);
    oscar.run(&["resolve", "no-id", "--succeeded"]).await.fails(1, "");
    let (_, pending) = app.held("pay", "2").await;
    oscar.run(&["resolve", &pending, "--failed", "x"]).await.fails(3, "");
    oscar.run(&["resolve", &id]).await.fails(2, "--succeeded");
    assert_eq!(app.client.call(&id).await["state"], "interrupted");
    assert_eq!(app.client.call(&pending).await["state"], "pending");
}
