//! No database connection is held while a model or a tool runs.

use futures::future::join_all;
use holdpoint_testkit::{Embedded, Rows, call, eventually, postgres};
use serde_json::json;
use std::time::Duration;

const STUCK: usize = 50;
/// More turns that wait for a tool or their model than the pool has connections.
const SPEAKING: usize = 5;
/// Events of a step with one call.
const CALLING: usize = 4;

#[tokio::test]
async fn decisions_and_reads_are_answered_with_two_connections_and_fifty_stuck_tools() {
    let app = Embedded::with(|config| {
        config.database.max_connections = 2;
        config.approval.wait = Duration::ZERO;
        config.limits.calls_per_step = STUCK;
    })
    .await;
    let thread = app.client.thread().await;
    let all: Vec<_> = (0..STUCK)
        .map(|n| call(&format!("p{n}"), "wait_for_me", &json!({ "note": n.to_string() })))
        .collect();
    app.scene.calls(&all);
    let ids = app.client.send_message(&thread, "all of them").await.pending();
    assert_eq!(ids.len(), STUCK);
    for id in &ids {
        app.client.approve(id).await.has_status(202);
    }
    for _ in &ids {
        app.ledger.wait_started().await;
    }
    // A call that is held already, to be decided later.
    let (other, held) = app.held("pay", "10").await;
    for n in 0..SPEAKING {
        app.scene.calls(&[call(&format!("d{n}"), "dawdle", &json!({ "note": "1" }))]);
    }
    for _ in 0..SPEAKING {
        app.scene.answers("At last.");
    }
    let gate = app.scene.gate();
    let turns = async {
        let speak = async || {
            let thread = app.client.thread().await;
            app.client.send_message(&thread, "speak").await
        };
        join_all((0..SPEAKING).map(|_| speak())).await
    };
    let answers = async || {
        assert_eq!(app.client.messages(&other).await.len(), 2);
        app.client.get("/threads").await.has_status(200);
        app.client.get("/readyz").await.has_status(200);
        assert_eq!(app.client.call(&ids[0]).await["state"], "executing");
        let stuck = "tool_calls WHERE name = 'wait_for_me' AND state = 'executing'";
        assert_eq!(app.rows.count(stuck).await, STUCK as i64);
    };
    let meanwhile = async {
        app.wait_for_model_requests(2 + SPEAKING).await;
        // The response does not wait for the outcome, but may contain it.
        assert!(matches!(app.client.approve(&held).await.status, 200 | 202));
        app.client.becomes(&held, "succeeded").await;
        answers().await;

        gate.add_permits(CALLING * SPEAKING);
        let all_run = async || (app.ledger.lines().len() == STUCK + SPEAKING + 1).then_some(());
        eventually("all tools run", all_run).await;
        answers().await;
        app.ledger.release.add_permits(STUCK + SPEAKING);
        app.wait_for_model_requests(2 + 2 * SPEAKING).await;
        gate.add_permits(2 * SPEAKING);
    };
    let (turns, ()) = tokio::join!(turns, meanwhile);
    assert!(turns.iter().all(|turn| turn.text() == "At last."));
    for id in &ids {
        app.client.becomes(id, "succeeded").await;
    }
    assert_eq!(app.ledger.lines().len(), STUCK + SPEAKING + 1);
}

#[tokio::test]
async fn on_postgres_a_decision_does_not_wait_for_a_chat_that_holds_the_last_connection() {
    let url = postgres().await;
    let beside = Rows::open(&url).await;
    let app = Embedded::with(|config| {
        config.database.url = url.into();
        config.database.max_connections = 2;
    })
    .await;
    let (_, id) = app.held("pay", "10").await;
    let thread = app.client.thread().await;
    let lock = format!("BEGIN; SELECT 1 FROM threads WHERE thread_id = '{thread}' FOR UPDATE");
    app.rows.change(&lock).await.unwrap();
    app.scene.answers("At last.");
    let decide = async {
        // The chat holds its connection.
        beside.wait_for_lock_waiter().await;
        let approved = app.client.approve(&id).await;
        approved.has(200, "state", "succeeded");
        app.rows.change("COMMIT").await.unwrap();
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "hi"), decide);
    assert_eq!(turn.text(), "At last.");
}
