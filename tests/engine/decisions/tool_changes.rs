//! Deploys while a call is pending: the tool is removed, or its schema changes.

use holdpoint::config::Config;
use holdpoint::tools::ToolRegistry;
use holdpoint_testkit::{ChangedPay, Embedded, JsonFields, probes};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_call_of_a_removed_tool_can_be_rejected_and_not_approved() {
    let app = Embedded::start().await;
    let (_, first) = app.held("pay", "1").await;
    let (_, second) = app.held("pay", "2").await;
    let app = app.redeploy(ToolRegistry::new()).await;
    let answer = app.client.approve(&first).await;
    answer.failed_with(409, "tool_unavailable");
    assert_eq!(app.client.call(&first).await["state"], "pending");
    assert_eq!(app.client.reject(&second).await.body["state"], "rejected");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}

#[tokio::test]
async fn b9_a_shown_hash_is_stale_once_the_schema_of_the_tool_changes() {
    let app = Embedded::start().await;
    let (_, short) = app.held("pay", "1").await;
    let (_, long) = app.held("pay", "a long note").await;
    let shown = app.client.call(&short).await;
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let app = app.redeploy(tools).await;

    let decide =
        |hash: &serde_json::Value| json!({ "toolCallId": short, "isValidated": true, "inputHash": hash });
    let stale = app.client.validate(&decide(&shown["input_hash"])).await;
    stale.failed_with(409, "stale");
    let now = app.client.call(&short).await;
    assert_eq!(now["input_hash"], stale.body["error"]["details"]["input_hash"]);
    assert_eq!(now["schema_hash"], shown["schema_hash"], "the schema it was asked for with");
    assert_eq!(app.client.validate(&decide(&now["input_hash"])).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["changed pay 1"]);

    // The inputs must still fit the tool that would run.
    let hash = app.client.call(&long).await["input_hash"].clone();
    let yes = json!({ "toolCallId": long, "isValidated": true, "inputHash": hash });
    let unfit = app.client.validate(&yes).await;
    unfit.failed_with(422, "invalid_inputs");
    assert_eq!(app.client.call(&long).await["state"], "pending");
}

#[tokio::test]
async fn after_a_change_of_the_tool_no_route_takes_an_approval_that_names_no_hash() {
    let app = Embedded::start().await;
    let (thread, call) = app.held("pay", "1").await;
    let shown = app.client.call(&call).await;
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let app = app.redeploy(tools).await;

    let yes = json!({ "toolCallId": call, "isValidated": true });
    let (run, session) = (shown.text("run_id"), shown.text("session_id"));
    let of_run = app.client.post(&format!("/runs/{run}/approve"), &json!({ "tool_call_id": call })).await;
    let edited = json!({ "toolCallId": call, "isValidated": true, "validatedInputs": { "note": "2" } });
    let in_session = format!("/sessions/{session}/approvals/{call}");
    for answer in [
        app.client.validate(&yes).await,
        app.client.validate(&edited).await,
        of_run,
        app.client.post(&in_session, &json!({ "decision": "allow_once" })).await,
    ] {
        answer.failed_with(409, "stale");
    }
    let all = app.client.post("/qa/validate_tools", &json!({ "decisions": [yes] })).await;
    assert_eq!(all.body["results"][0]["error"]["code"], "stale", "{}", all.body);
    assert_eq!(app.client.call(&call).await["state"], "pending");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());

    // A rejection does no harm.
    assert_eq!(app.client.reject(&call).await.body["state"], "rejected");
    let _ = thread;
}

/// Longer ago than any lease or deadline.
const LONG_AGO: &str = "1000000";

/// An approval that the server before the deploy committed without claiming the call.
async fn approved_before_a_deploy() -> (Embedded, String) {
    let app = Embedded::with(|config| config.approval.sweep = Duration::from_secs(3600)).await;
    let (_, id) = app.held("pay", "10").await;
    app.commit_yes(&id, LONG_AGO, "expires_at").await;
    (app, id)
}

fn swept_often(config: &mut Config) {
    config.approval.sweep = Duration::from_millis(20);
    config.approval.wait = Duration::ZERO;
}

#[tokio::test]
async fn an_approval_from_before_a_deploy_runs_if_the_tool_is_unchanged() {
    let (app, id) = approved_before_a_deploy().await;
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, swept_often).await;
    app.client.becomes(&id, "succeeded").await;
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn an_approval_of_a_tool_whose_schema_has_changed_runs_nothing() {
    let (app, id) = approved_before_a_deploy().await;
    let (_, other) = app.held("pay", "11").await;
    let mut tools = ToolRegistry::new();
    tools.register(ChangedPay(app.ledger.clone())).unwrap();
    let app = app.redeploy_with(tools, swept_often).await;
    let repeat = app.client.approve(&id).await;
    assert_eq!((repeat.status, &repeat.body["state"]), (202, &json!("executing")), "no process has begun");
    // The expiry shows that a sweep has looked at the call.
    let swept = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{other}'");
    assert_eq!(app.rows.change(&swept).await, Ok(1));
    app.client.becomes(&other, "expired").await;
    assert_eq!(app.client.call(&id).await["state"], "approved");

    let over = format!("UPDATE tool_calls SET start_deadline = {LONG_AGO} WHERE tool_call_id = '{id}'");
    assert_eq!(app.rows.change(&over).await, Ok(1));
    let call = app.client.becomes(&id, "failed").await;
    assert_eq!(call["result"], "Approved by a person, but not begun in time. The tool did not run.");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
}
