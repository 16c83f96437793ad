//! Clients that disconnect during a decision.

use super::{HALF_DECIDED, a_while, all_is_whole, in_rounds};
use holdpoint_testkit::{Answer, DisconnectKind, Embedded, Leaver, call, eventually};
use serde_json::{Value, json};

const PATH: &str = "/qa/validate_tool";

fn decision(call: &str, yes: bool) -> Value {
    json!({ "toolCallId": call, "isValidated": yes })
}

/// The result of a repeat: its status, whether the same decision was stored before, and the outcome.
fn stored(answer: &Answer) -> (u16, bool, &str) {
    let replayed = answer.header("idempotent-replayed") == Some("true");
    (answer.status, replayed, answer.body["state"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_decision_with_a_truncated_body_decides_nothing() {
    let app = Embedded::start().await;
    let mut left = Vec::new();
    for how in DisconnectKind::ALL {
        let (thread, id) = app.held("pay", &format!("{how:?}")).await;
        let client = Leaver::sends_half(&app.client, how, PATH, &decision(&id, false)).await;
        left.push((how, thread, id, client.leaves().await));
    }
    // After all of them, so that a decision that one of them began would be visible.
    for (how, thread, id, _connection) in left {
        assert_eq!(app.client.call(&id).await["state"], "pending", "{how:?}");

        assert_eq!(stored(&app.client.approve(&id).await), (200, false, "succeeded"), "{how:?}");
        app.scene.answers("Paid.");
        assert_eq!(app.client.resume(&thread).await.text(), "Paid.", "{how:?}");
    }
    assert_eq!(app.rows.count("decisions").await, i64::try_from(DisconnectKind::ALL.len()).unwrap());
    assert_eq!(app.ledger.lines(), DisconnectKind::ALL.map(|how| format!("pay {how:?}")));
    all_is_whole(&app).await;
}

#[tokio::test]
async fn a_decider_that_disconnects_at_any_moment_has_decided_wholly_or_not_at_all() {
    // Approvals and rejections alternate, so that each way of disconnecting has both.
    let all: Vec<_> = in_rounds().map(|(round, how)| (round, how, round % 2 == 0)).collect();
    let app = Embedded::with(|config| config.limits.calls_per_step = all.len()).await;
    let thread = app.client.thread().await;
    let note = |n: usize| n.to_string();
    let calls: Vec<_> = (0..all.len()).map(|n| call(&note(n), "pay", &json!({ "note": note(n) }))).collect();
    app.scene.calls(&calls);
    let ids = app.client.send_message(&thread, "pay").await.pending();
    assert_eq!(ids.len(), all.len());
    let mut connections = Vec::new();
    for (id, (round, how, yes)) in ids.iter().zip(&all) {
        let client = Leaver::sends(&app.client, *how, PATH, &decision(id, *yes)).await;
        a_while(&app, *round).await;
        connections.push(client.leaves().await);
        // One query reads one moment: the transition, its decision and its event exist together or not at
        // all.
        assert_eq!(app.rows.count(HALF_DECIDED).await, 0, "{how:?}");
    }
    let followed = async || {
        let standing = app.rows.count("tool_calls WHERE state IN ('approved', 'executing')").await;
        (standing == 0).then_some(())
    };
    eventually("a yes is followed without anybody asking again", followed).await;
    // A repeat of the decision returns the outcome, whether or not the first request arrived.
    for (id, (_, how, yes)) in ids.iter().zip(&all) {
        let answer = app.client.validate(&decision(id, *yes)).await;
        let (status, _, state) = stored(&answer);
        assert_eq!((status, state), (200, if *yes { "succeeded" } else { "rejected" }), "{how:?}");
        assert_eq!(stored(&app.client.validate(&decision(id, *yes)).await), (200, true, state), "{how:?}");
    }
    let mut lines = app.ledger.lines();
    lines.sort_unstable();
    let approved = (0..all.len()).filter(|n| all[*n].2);
    let mut expected: Vec<String> = approved.map(|n| format!("pay {}", note(n))).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected, "each yes ran once");
    assert_eq!(app.rows.count("decisions").await, i64::try_from(all.len()).unwrap());
    app.scene.answers("Done.");
    assert_eq!(app.client.resume(&thread).await.text(), "Done.");
    all_is_whole(&app).await;
}

#[tokio::test]
async fn a_tool_keeps_running_when_its_decider_disconnects() {
    let app = Embedded::start().await;
    for how in DisconnectKind::ALL {
        let (thread, id) = app.held("wait_for_me", &format!("{how:?}")).await;
        let client = Leaver::sends(&app.client, how, PATH, &decision(&id, true)).await;
        app.ledger.wait_started().await;
        let _connection = client.leaves().await;
        assert_eq!(app.client.call(&id).await["state"], "executing", "{how:?}");

        app.ledger.release.add_permits(1);
        assert_eq!(stored(&app.client.approve(&id).await), (200, true, "succeeded"), "{how:?}");
        app.scene.answers("Waited.");
        assert_eq!(app.client.resume(&thread).await.text(), "Waited.", "{how:?}");
    }
    assert_eq!(app.ledger.lines(), DisconnectKind::ALL.map(|how| format!("wait_for_me {how:?}")));
    all_is_whole(&app).await;
}

#[tokio::test]
async fn an_outcome_is_kept_when_its_decider_disconnects_before_reading_it() {
    let app = Embedded::start().await;
    for (how, yes) in DisconnectKind::ALL.into_iter().flat_map(|how| [(how, true), (how, false)]) {
        let note = format!("{how:?}");
        let (thread, id) = app.held("pay", &note).await;
        let state = if yes { "succeeded" } else { "rejected" };
        let client = Leaver::sends(&app.client, how, PATH, &decision(&id, yes)).await;
        let settled = async || (app.client.call(&id).await["state"] == state).then_some(());
        eventually("the call has ended", settled).await;
        let _connection = client.leaves().await;

        let again = app.client.validate(&decision(&id, yes)).await;
        assert_eq!(stored(&again), (200, true, state), "{how:?}");
        assert_eq!(app.client.validate(&decision(&id, !yes)).await.code(), "already_decided", "{how:?}");
        app.scene.answers("I see.");
        assert_eq!(app.client.resume(&thread).await.text(), "I see.", "{how:?}");
    }
    assert_eq!(
        app.ledger.lines(),
        DisconnectKind::ALL.map(|how| format!("pay {how:?}")),
        "only where it was a yes"
    );
    all_is_whole(&app).await;
}
