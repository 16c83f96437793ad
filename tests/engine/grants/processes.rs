//! Where grants are kept: in the database for all processes, or in the memory of one process.

use super::{granted, grants, made, remember};
use holdpoint::config::{Config, RememberIn};
use holdpoint_testkit::{Embedded, call, postgres, probes};
use serde_json::{Value, json};

fn memory(config: &mut Config) {
    config.approval.remember = RememberIn::Memory;
}

#[tokio::test]
async fn a_stored_grant_outlives_the_process() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    granted(&app.client, &first).await;
    let before = grants(&app.client, &thread).await;
    let tools = probes(&app.ledger);
    let app = app.redeploy(tools).await;
    assert_eq!(grants(&app.client, &thread).await, before);
    assert_eq!(made(&app, &thread, "pay", "2").await["state"], "succeeded");
    // With `remember = "memory"` the server ignores the stored grants.
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, memory).await;
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
    assert_eq!(made(&app, &thread, "pay", "3").await["state"], "pending");
}

#[tokio::test]
async fn a_grant_in_memory_ends_with_the_process() {
    let app = Embedded::with(memory).await;
    let thread = app.client.thread().await;
    app.scene.calls(&["1", "2"].map(|note| call(note, "pay", &json!({ "note": note }))));
    let ids = app.client.send_message(&thread, "pay").await.pending();
    granted(&app.client, &ids[0]).await;
    app.client.becomes(&ids[1], "succeeded").await;
    assert_eq!(made(&app, &thread, "pay", "3").await["state"], "succeeded");
    assert_eq!(grants(&app.client, &thread).await.len(), 1);
    let tools = probes(&app.ledger);
    let app = app.redeploy_with(tools, memory).await;
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
    assert_eq!(made(&app, &thread, "pay", "4").await["state"], "pending");
    let tools = probes(&app.ledger);
    let app = app.redeploy(tools).await;
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
    assert_eq!(made(&app, &thread, "pay", "5").await["state"], "pending");
    assert_eq!(app.rows.count("grants").await, 1, "the grant stays on record");
}

#[tokio::test]
async fn another_process_honours_stored_grants_and_not_grants_in_memory_on_postgres() {
    for (keep, state) in [(RememberIn::Store, "succeeded"), (RememberIn::Memory, "pending")] {
        let url = postgres().await;
        let change = |config: &mut Config| {
            config.database.url = url.clone().into();
            config.approval.remember = keep;
        };
        let here = Embedded::with(&change).await;
        let there = Embedded::with(&change).await;
        let (thread, first) = here.held("pay", "1").await;
        // The process that accepts the grant approves the pending calls of every process.
        let waits = there.hold_in(&thread, "pay", "2").await;
        granted(&here.client, &first).await;
        here.client.becomes(&waits, "succeeded").await;
        assert_eq!(made(&here, &thread, "pay", "3").await["state"], "succeeded");
        assert_eq!(made(&there, &thread, "pay", "4").await["state"], state, "{keep:?}");
        let listed = grants(&there.client, &thread).await.len();
        assert_eq!(listed, usize::from(keep == RememberIn::Store));
        // Both processes accept a grant at the same time.
        let ids = [here.hold_in(&thread, "mumble", "5").await, there.hold_in(&thread, "mumble", "6").await];
        let both = [remember(&here.client, &ids[0]), remember(&there.client, &ids[1])];
        for answer in futures::future::join_all(both).await {
            answer.has_status(200);
        }
    }
}
