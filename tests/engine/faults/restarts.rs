//! A server that is killed before it has sent anything.

use super::question;
use holdpoint_testkit::{Client, Deployment, eventually};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

const RAN: [&str; 2] = ["transfer 10", "transfer 10 done"];

/// A request is not answered for this long because another session blocks all writers.
const A_WHILE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_question_lost_to_a_kill_before_its_commit_is_accepted_when_it_is_posted_again() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let rows = deployment.rows().await;
    deployment.hold_writers(&rows).await;
    let client = server.client.clone();
    assert!(timeout(A_WHILE, client.turn_by_id(&question())).await.is_err());
    server.kill();
    rows.change("ROLLBACK").await.unwrap();

    let server = deployment.start("0s");
    for table in ["threads", "messages", "runs"] {
        assert_eq!(rows.count(table).await, 0, "{table}");
    }
    assert_eq!(server.client.turn_by_id(&question()).await.text(), "hi");
    assert_eq!(rows.count("messages WHERE role = 'user'").await, 1);
}

#[tokio::test]
async fn a_call_whose_decision_a_kill_prevented_is_pending_and_the_next_approval_decides_it() {
    let deployment = Deployment::new().await;
    deployment.release();
    let mut server = deployment.start("30s");
    let thread = server.client.thread().await;
    let id = deployment.hold(&server.client, &thread, "10").await;
    let rows = deployment.rows().await;
    deployment.hold_writers(&rows).await;
    let client = server.client.clone();
    assert!(timeout(A_WHILE, client.approve(&id)).await.is_err());
    server.kill();
    rows.change("ROLLBACK").await.unwrap();

    let server = deployment.start("30s");
    assert_eq!(server.client.call(&id).await["state"], "pending");
    assert_eq!(rows.count("decisions").await, 0);
    let approved = server.client.approve(&id).await;
    approved.has(200, "state", "succeeded");
    assert_eq!(approved.header("idempotent-replayed"), None);
    assert_eq!(server.client.resume(&thread).await.text(), "{\"transferred\":\"10\"}");
    assert_eq!(deployment.ledger(), RAN);
}

async fn broken_off(client: &Client, thread: &str) -> Value {
    let broken = async || {
        let last = client.messages(thread).await.pop();
        last.filter(|message| message["status"] == "interrupted")
    };
    eventually("the answer is shown as broken off", broken).await
}

#[tokio::test]
async fn a_question_survives_a_kill_before_the_first_delta_and_is_answered_on_request() {
    let deployment = Deployment::new().await;
    let mut server = deployment.start("0s");
    let thread = server.client.thread().await;
    let turn = server.client.begin(&thread, &json!({ "content": "ponder hi" })).await;
    deployment.wait_started(&["ponder"]).await;
    server.kill();
    drop(turn);

    let server = deployment.start("0s");
    let client = &server.client;
    let broken = broken_off(client, &thread).await;
    assert_eq!(broken["parts"], json!([{ "type": "step_start" }]), "no text was streamed");
    assert_eq!(client.questions(&thread).await, ["ponder hi"]);
    assert_eq!(deployment.ledger(), ["ponder"], "the turn is not resumed automatically");
    deployment.release();
    let again = client.resume(&thread).await;
    assert_eq!(again.text(), "hi", "{}", again.raw);
    assert_eq!(again.one('f')["messageId"], broken["message_id"]);
    assert_eq!(deployment.ledger(), ["ponder", "ponder"]);
}
