//! Each statement finds its rows by an index, however many rows its table has.

use holdpoint_testkit::{Embedded, Rows, call, eventually, postgres};
use serde_json::{Value, json};

/// The only table that is read from end to end: it has one row.
const ONE_ROW: &str = "event_sequence";

/// A turn with two steps and a hold, a decision of each kind, and everything that a page and the console read.
async fn work(app: &Embedded) {
    let (thread, approved) = app.held("pay", "10").await;
    let rejected = app.hold_in(&app.client.thread().await, "pay", "20").await;
    for path in [
        "/approvals".to_owned(),
        "/sessions".to_owned(),
        "/threads".to_owned(),
        "/tool_requests".to_owned(),
        format!("/threads/{thread}/approvals"),
        format!("/sessions/{thread}/approvals"),
        format!("/sessions/{thread}/grants"),
        format!("/tool_calls/{approved}"),
    ] {
        assert_eq!(app.client.get(&path).await.status, 200, "{path}");
    }
    assert_eq!(app.client.approve(&approved).await.body["state"], "succeeded");
    assert_eq!(app.client.reject(&rejected).await.body["state"], "rejected");
    app.scene.calls(&[call("a", "look", &json!({ "note": "1" }))]).answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    for path in [
        "/approvals?state=rejected".to_owned(),
        format!("/threads/{thread}/messages"),
        format!("/tool_calls/{rejected}"),
        format!("/tool_calls/{rejected}/events"),
    ] {
        assert_eq!(app.client.get(&path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn on_postgres_every_statement_of_a_round_and_of_the_lists_can_use_an_index() {
    let url = postgres().await;
    let name = url.rsplit_once('/').unwrap().1;
    let rows = Rows::open(&url).await;
    // Without this setting, Postgres reads a small table from end to end although it could use an index.
    rows.change(&format!("ALTER DATABASE {name} SET enable_seqscan = off")).await.unwrap();
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    rows.all("SELECT pg_stat_reset()::TEXT AS reset").await;
    work(&app).await;
    drop(app);
    // A connection counts its last scans when it ends.
    let others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    eventually("the server has left", async || (rows.count(others).await == 0).then_some(())).await;
    let by_index = rows.count("pg_stat_user_tables WHERE relname = 'decisions' AND idx_scan > 0").await;
    assert_eq!(by_index, 1, "scans are counted");
    let scanned = "SELECT relname FROM pg_stat_user_tables WHERE schemaname = 'holdpoint' AND seq_scan > 0";
    let scanned: Vec<Value> = rows.all(&format!("{scanned} AND relname <> '{ONE_ROW}'")).await;
    assert_eq!(scanned, Vec::<Value>::new());
}
