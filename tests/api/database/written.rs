//! What a hold round writes on Postgres: rows, and bytes of the log that Postgres replicates and archives.

use holdpoint_testkit::{Cluster, Embedded, Rows, eventually};
use serde_json::json;

/// The rounds of a try. Work that recurs with the time, such as a renewal, is a small part of so many.
const ROUNDS: i64 = 20;
/// The tries. The first one makes the pages of the indexes, and after a checkpoint each page is logged whole once.
const TRIES: i64 = 4;
/// The most rows that a round inserts and updates.
const ROWS_WRITTEN: i64 = 41;
/// The most bytes of log that a round writes.
const LOG_WRITTEN: i64 = 26_000;

/// Runs whole rounds, each in a thread of its own: a turn with a hold, the approval, and the continuation.
async fn rounds(app: &Embedded, count: i64) {
    for _ in 0..count {
        let (thread, held) = app.held("pay", "10").await;
        app.client.approve(&held).await.has(200, "state", "succeeded");
        app.scene.answers("Paid.");
        assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    }
}

async fn log_position(rows: &Rows) -> i64 {
    let position = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::BIGINT AS count";
    rows.all(position).await[0]["count"].as_i64().unwrap()
}

#[tokio::test]
async fn on_postgres_a_round_writes_no_more_rows_and_no_more_log_than_its_budget() {
    // Of its own: the log is that of the whole server.
    let cluster = Cluster::start();
    let url = cluster.database().await;
    let rows = Rows::open(&url).await;
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    let mut logs = Vec::new();
    for _ in 0..TRIES {
        let before = log_position(&rows).await;
        rounds(&app, ROUNDS).await;
        let all_numbered = async || (rows.count("events WHERE seq IS NULL").await == 0).then_some(());
        eventually("all events have numbers", all_numbered).await;
        logs.push((log_position(&rows).await - before) / ROUNDS);
    }
    let log = logs.into_iter().min().unwrap();
    drop(app);
    // A connection counts its last rows when it ends.
    let others = "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    eventually("the server has left", async || (rows.count(others).await == 0).then_some(())).await;
    let written = "SELECT relname, n_tup_ins AS inserted, n_tup_upd AS updated, n_tup_hot_upd AS hot
        FROM pg_stat_user_tables WHERE schemaname = 'holdpoint' AND n_tup_ins + n_tup_upd > 10 ORDER BY relname";
    let tables = rows.all(written).await;
    let sum = |column: &str| tables.iter().map(|table| table[column].as_i64().unwrap()).sum::<i64>();
    let of_round = (sum("inserted") + sum("updated")) / (ROUNDS * TRIES);
    println!("a round writes {of_round} rows and {log} bytes of log");
    let shown = || json!(tables).to_string().replace("},", "},\n");
    assert!(of_round > 0, "rows are counted");
    assert!(of_round <= ROWS_WRITTEN, "{of_round} rows:\n{}", shown());
    assert!(log <= LOG_WRITTEN, "{log} bytes of log");
    println!("{}", shown());
}
