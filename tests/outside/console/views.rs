//! The views of the console: each state of a call, and each look.

use super::play;
use holdpoint_testkit::Embedded;
use serde_json::json;

#[tokio::test]
async fn the_history_has_the_decided_calls_of_every_state() {
    let app = Embedded::start().await;
    let (session, paid) = app.held("pay", "1").await;
    app.client.approve(&paid).await;
    let (_, denied) = app.held("pay", "2").await;
    app.client.reject(&denied).await;
    let (_, failed) = app.held("refuse", "3").await;
    app.client.approve(&failed).await;
    let (_, cancelled) = app.held("pay", "4").await;
    app.client.post(&format!("/tool_calls/{cancelled}/cancel"), &json!({})).await;
    let (_, broken) = app.held("break", "5").await;
    app.client.approve(&broken).await;
    app.held("pay", "7").await;
    // The server resumes a run whose call has expired, so no model is asked for another call after that.
    let (_, expired) = app.held("pay", "6").await;
    let overdue = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{expired}'");
    assert_eq!(app.rows.change(&overdue).await, Ok(1));
    assert_eq!(app.client.approve(&expired).await.code(), "expired");
    play("history", &app.client.base, json!({ "session": session })).await;
}

#[tokio::test]
async fn every_look_is_accessible_and_fits_its_window() {
    let app = Embedded::start().await;
    let mut tools = holdpoint_testkit::probes(&app.ledger);
    tools.register(super::files::Letter).unwrap();
    let app = app.redeploy(tools).await;
    app.scene.calls(&[holdpoint_testkit::call("l-1", "letter", &json!({ "text": "w".repeat(5000) }))]);
    let thread = app.client.thread().await;
    app.client.send_message(&thread, "write a letter").await;
    play("views", &app.client.base, json!({})).await;
}
