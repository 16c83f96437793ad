//! Nobody holds a connection of the database while a model or a tool runs.

use crate::support::{Embedded, call, eventually};
use futures::future::join_all;
use serde_json::json;
use std::time::Duration;

const STUCK: usize = 50;
/// More turns that wait for their model than there are connections.
const SPEAKING: usize = 5;

#[tokio::test]
async fn with_two_connections_and_fifty_stuck_tools_decisions_and_reads_still_answer() {
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
    let ids = app.client.say(&thread, "all of them").await.pending();
    assert_eq!(ids.len(), STUCK);
    for id in &ids {
        assert_eq!(app.client.approve(id).await.status, 202);
    }
    for _ in &ids {
        app.ledger.wait_begun().await;
    }
    // One that is held already, so that there is something to decide.
    let (other, held) = app.held("pay", "10").await;
    for _ in 0..SPEAKING {
        app.scene.says("At last.");
    }
    let gate = app.scene.gate();
    let turns = async {
        let speak = async || {
            let thread = app.client.thread().await;
            app.client.say(&thread, "speak").await
        };
        join_all((0..SPEAKING).map(|_| speak())).await
    };
    let meanwhile = async {
        let running =
            async || (app.rows.count("runs WHERE status = 'running'").await == SPEAKING as i64).then_some(());
        eventually("all turns wait for their model", running).await;
        assert_eq!(app.client.approve(&held).await.status, 202);
        app.client.becomes(&held, "succeeded").await;
        assert_eq!(app.client.messages(&other).await.len(), 2);
        assert_eq!(app.client.get("/threads").await.status, 200);
        assert_eq!(app.client.get("/readyz").await.status, 200);
        let states = join_all(ids.iter().map(|id| app.client.call(id))).await;
        assert!(states.iter().all(|call| call["state"] == "executing"));
        gate.add_permits(2 * SPEAKING);
    };
    let (turns, ()) = tokio::join!(turns, meanwhile);
    assert!(turns.iter().all(|turn| turn.text() == "At last."));
    app.ledger.go.add_permits(STUCK);
    for id in &ids {
        app.client.becomes(id, "succeeded").await;
    }
    assert_eq!(app.ledger.lines().len(), STUCK + 1);
}
