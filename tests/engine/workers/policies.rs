//! The policy between the approval and the claim, and the inputs that reach the worker.

use super::{approved, claim, cleared, nothing, start, start_with};
use holdpoint_testkit::runs::run_becomes;
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::json;
use std::time::Duration;

async fn set_policy(app: &Embedded, thread: &str, tool: &str, policy: &str) {
    let body = json!({ "tools": { tool: policy } });
    let set = app.client.http.put(app.client.url(&format!("/sessions/{thread}/policy"))).json(&body);
    let set = app.client.send(set).await;
    set.has_status(200);
}

#[tokio::test]
async fn an_approved_call_that_the_policy_forbids_now_is_not_handed_out_and_fails() {
    let app = start().await;
    let (thread, id) = approved(&app, "ship", "1").await;
    set_policy(&app, &thread, "ship", "deny").await;
    assert!(nothing(&app.client, "ship").await);
    let call = app.client.call(&id).await;
    assert_eq!(call["state"], "failed");
    assert!(call.text("result").contains("ship does not run in this session"), "{call}");
    assert!(call.get("started_at").is_none(), "{call}");
}

#[tokio::test]
async fn a_cleared_call_that_the_policy_forbids_now_fails_and_its_run_resumes() {
    let app = start().await;
    let (thread, id) = cleared(&app, "pack", "1").await;
    set_policy(&app, &thread, "pack", "deny").await;
    app.scene.answers("I may not.");
    assert!(nothing(&app.client, "pack").await);
    assert_eq!(app.client.call(&id).await["state"], "failed");
    let run = app.client.run_of(&id).await;
    run_becomes(&app.client, &run, "completed").await;
}

#[tokio::test]
async fn a_cleared_call_that_would_be_held_now_is_not_handed_out_and_fails_at_its_deadline() {
    let app = start_with(super::TIMEOUT, |config| {
        config.approval.start_deadline = Duration::from_secs(2);
        config.approval.sweep = Duration::from_millis(20);
    })
    .await;
    let (thread, id) = cleared(&app, "pack", "1").await;
    set_policy(&app, &thread, "pack", "ask").await;
    // A call that may begin is found behind the other one.
    let (_, other) = cleared(&app, "pack", "2").await;
    assert_eq!(claim(&app.client, "pack").await.id, other);
    assert!(nothing(&app.client, "pack").await);
    app.scene.answers("Too late.");
    let call = app.client.becomes(&id, "failed").await;
    assert!(call.get("started_at").is_none(), "{call}");
    let run = app.client.run_of(&id).await;
    run_becomes(&app.client, &run, "completed").await;
}

#[tokio::test]
async fn an_approved_call_that_no_worker_claims_in_time_fails() {
    let app = start_with(super::TIMEOUT, |config| {
        config.approval.start_deadline = Duration::from_millis(50);
        config.approval.sweep = Duration::from_millis(20);
    })
    .await;
    let (_, id) = app.held("ship", "1").await;
    app.client.approve(&id).await;
    let call = app.client.becomes(&id, "failed").await;
    assert!(call.get("started_at").is_none(), "{call}");
    assert!(nothing(&app.client, "ship").await);
}

#[tokio::test]
async fn edited_inputs_reach_the_worker() {
    let app = start().await;
    let (_, id) = app.held("ship", "10").await;
    let edit = json!({ "toolCallId": id, "isValidated": true, "validatedInputs": { "note": "9" } });
    app.client.validate(&edit).await;
    let job = claim(&app.client, "ship").await;
    assert_eq!(job.call["input"], json!({ "note": "9" }));
    job.succeed(&app.client, &json!("done")).await;
    let result = app.client.call(&id).await.text("result").to_owned();
    assert!(result.contains(r#"{"note":"10"} to {"note":"9"}"#), "{result}");
}

#[tokio::test]
async fn an_approval_of_the_policy_mode_hands_a_call_out_that_would_ask() {
    let app =
        start_with(super::TIMEOUT, |config| config.approval.always_allow = vec!["ship".to_owned()]).await;
    let (_, id) = cleared(&app, "ship", "1").await;
    let job = claim(&app.client, "ship").await;
    assert_eq!((&job.id, &job.call["approved_by"]), (&id, &json!([])));
}
