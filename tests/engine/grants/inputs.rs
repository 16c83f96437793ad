//! The inputs that a grant covers.

use super::{granted, grants, made, revoke};
use holdpoint::config::{Config, RememberInputs};
use holdpoint_testkit::{Embedded, JsonFields, probes};
use serde_json::{Value, json};

fn equal(config: &mut Config) {
    config.approval.remember_inputs = RememberInputs::Equal;
}

#[tokio::test]
async fn with_equal_inputs_required_other_inputs_need_an_approval() {
    let app = Embedded::with(equal).await;
    let (thread, first) = app.held("pay", "1").await;
    let other = app.hold_in(&thread, "pay", "2").await;
    granted(&app.client, &first).await;
    assert_eq!(app.client.call(&other).await["state"], "pending");
    assert_eq!(made(&app, &thread, "pay", "3").await["state"], "pending");
    assert_eq!(made(&app, &thread, "pay", "1").await["state"], "succeeded");
    let grant = grants(&app.client, &thread).await.remove(0);
    assert_eq!(grant["input_hash"], app.client.call(&first).await["decision"]["input_hash"]);
    granted(&app.client, &other).await;
    assert_eq!(grants(&app.client, &thread).await.len(), 2);
    assert_eq!(app.ledger.lines(), ["pay 1", "pay 1", "pay 2"]);
}

#[tokio::test]
async fn a_grant_from_an_edited_approval_covers_the_edited_inputs() {
    let app = Embedded::with(equal).await;
    let (thread, id) = app.held("pay", "1000").await;
    let edited = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "10" },
                         "remember": "session" });
    assert_eq!(app.client.validate(&edited).await.body["state"], "succeeded");
    assert_eq!(made(&app, &thread, "pay", "1000").await["state"], "pending");
    assert_eq!(made(&app, &thread, "pay", "10").await["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 10", "pay 10"]);
}

#[tokio::test]
async fn a_grant_for_any_inputs_is_ignored_once_inputs_must_be_equal() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    granted(&app.client, &first).await;
    assert_eq!(grants(&app.client, &thread).await[0]["input_hash"], Value::Null);
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, equal).await;
    let again = made(&app, &thread, "pay", "1").await;
    assert_eq!(again["state"], "pending");
    granted(&app.client, again.text("tool_call_id")).await;
    let tools = probes(&app.ledger);
    let app = app.redeploy(tools).await;
    let all = grants(&app.client, &thread).await;
    let any = all.iter().find(|grant| grant["input_hash"].is_null()).unwrap();
    assert_eq!(revoke(&app.client, &thread, any).await, 204);
    assert_eq!(made(&app, &thread, "pay", "1").await["state"], "succeeded", "the other grant is in force");
    assert_eq!(
        made(&app, &thread, "pay", "2").await["state"],
        "pending",
        "the grant covers its own inputs only"
    );
}
