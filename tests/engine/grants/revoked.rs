//! Revoked grants: later calls need an approval.

use super::{child, granted, grants, made, remember, revoke};
use futures::future::join;
use holdpoint_testkit::{Embedded, JsonFields, Rows, call, eventually, postgres};
use serde_json::{Value, json};

#[tokio::test]
async fn calls_need_an_approval_after_their_grant_is_revoked() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    granted(&app.client, &first).await;
    let grant = grants(&app.client, &thread).await.remove(0);
    assert_eq!(made(&app, &thread, "pay", "2").await["state"], "succeeded");
    assert_eq!(revoke(&app.client, &thread, &grant).await, 204);
    assert_eq!(grants(&app.client, &thread).await, Vec::<Value>::new());
    let requested = made(&app, &thread, "pay", "3").await;
    assert_eq!(requested["state"], "pending");
    assert_eq!(revoke(&app.client, &thread, &grant).await, 404, "the grant is gone");
    let rows = app.rows.all("SELECT granted_by, revoked_by FROM grants").await;
    assert_eq!(rows, [json!({ "granted_by": "user:local", "revoked_by": "user:local" })]);
    // A new approval creates a new grant.
    granted(&app.client, requested.text("tool_call_id")).await;
    assert_ne!(grants(&app.client, &thread).await[0]["grant_id"], grant["grant_id"]);
    assert_eq!(made(&app, &thread, "pay", "4").await["state"], "succeeded");
}

#[tokio::test]
async fn a_grant_is_revoked_in_its_own_session() {
    let app = Embedded::start().await;
    let (thread, first) = app.held("pay", "1").await;
    granted(&app.client, &first).await;
    let grant = grants(&app.client, &thread).await.remove(0);
    let other = app.client.thread().await;
    let below = child(&app.client, &thread).await;
    assert_eq!(revoke(&app.client, &other, &grant).await, 404);
    assert_eq!(revoke(&app.client, &below, &grant).await, 404);
    assert_eq!(revoke(&app.client, &thread, &json!({ "grant_id": "no-id" })).await, 404);
    assert_eq!(revoke(&app.client, "no-id", &grant).await, 404);
    assert_eq!(made(&app, &thread, "pay", "2").await["state"], "succeeded");
}

#[tokio::test]
async fn a_revoked_grant_neither_stops_running_calls_nor_undoes_its_decisions() {
    let app = Embedded::with(|config| config.approval.wait = std::time::Duration::ZERO).await;
    let thread = app.client.thread().await;
    let calls = ["1", "2"].map(|note| call(note, "wait_for_me", &json!({ "note": note })));
    app.scene.calls(&calls);
    let ids = app.client.send_message(&thread, "wait").await.pending();
    remember(&app.client, &ids[0]).await.has_status(202);
    app.ledger.wait_started().await;
    app.ledger.wait_started().await;
    let grant = grants(&app.client, &thread).await.remove(0);
    assert_eq!(revoke(&app.client, &thread, &grant).await, 204);
    assert_eq!(app.client.call(&ids[1]).await["state"], "executing");
    app.ledger.release.add_permits(2);
    for id in &ids {
        app.client.becomes(id, "succeeded").await;
    }
    assert_eq!(made(&app, &thread, "wait_for_me", "3").await["state"], "pending");
}

/// A grant that a turn has looked up stays in force until the turn has stored its calls. The revocation waits
/// for that, and its answer arrives only when no further call can start under the grant.
#[tokio::test]
async fn a_revocation_waits_for_a_call_that_is_being_stored_on_postgres() {
    let url = postgres().await;
    // Inside its transaction, the locking session would keep seeing its first snapshot of `pg_stat_activity`.
    let sessions = Rows::open(&url).await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let (thread, first) = app.held("pay", "1").await;
    let below = child(&app.client, &thread).await;
    granted(&app.client, &first).await;
    let grant = grants(&app.client, &thread).await.remove(0);
    app.rows.change("BEGIN; LOCK TABLE tool_calls IN SHARE MODE").await.unwrap();
    app.scene.calls(&[call("p", "pay", &json!({ "note": "2" }))]).answers("Paid.");
    let use_it = async {
        let turn = app.client.send_message(&below, "pay").await;
        app.client.call(turn.one('9').text("toolCallId")).await
    };
    let revoke_it = async {
        // A background task may wait for the table too.
        let stores = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                      AND query ILIKE '%INSERT INTO%tool_calls%'";
        eventually("the turn stores its call", async || (sessions.count(stores).await == 1).then_some(()))
            .await;
        let revoked = revoke(&app.client, &thread, &grant);
        let let_go = async {
            let waits = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
            eventually("both wait", async || (sessions.count(waits).await >= 2).then_some(())).await;
            app.rows.change("ROLLBACK").await.unwrap();
        };
        join(revoked, let_go).await.0
    };
    let (used, revoked) = join(use_it, revoke_it).await;
    assert_eq!((used["state"].as_str(), revoked), (Some("succeeded"), 204));
    assert_eq!(made(&app, &below, "pay", "3").await["state"], "pending");
}

#[tokio::test]
async fn no_call_starts_under_a_grant_after_the_answer_to_its_revocation() {
    let app = Embedded::start().await;
    for round in 0..10 {
        let (thread, first) = app.held("pay", &format!("{round}")).await;
        granted(&app.client, &first).await;
        let grant = grants(&app.client, &thread).await.remove(0);
        let (used, revoked) = join(
            made(&app, &thread, "pay", &format!("{round} at once")),
            revoke(&app.client, &thread, &grant),
        )
        .await;
        assert_eq!(revoked, 204);
        assert!(["succeeded", "pending"].contains(&used.text("state")), "{used}");
        if used["state"] == "succeeded" {
            let source = format!("remembered:{}", grant.text("grant_id"));
            assert_eq!(used["decision"]["source"], source);
        }
        let ran = app.ledger.lines().iter().filter(|line| line.ends_with("at once")).count();
        let thread_after = made(&app, &thread, "pay", &format!("{round} after")).await;
        assert_eq!(thread_after["state"], "pending");
        assert!(ran <= round + 1);
    }
    assert!(app.ledger.lines().iter().all(|line| !line.ends_with("after")));
}
