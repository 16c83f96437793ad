//! A user with many threads: a turn and a decision in one of them read none of the others.

use holdpoint_testkit::{Embedded, postgres, probes};
use std::time::Duration;

/// The number of other threads of the user.
const OTHERS: i64 = 2000;
/// The rounds, so that each connection plans its statements for good.
const ROUNDS: i64 = 10;
/// The maximum number of threads, and of index entries, that the server may read in a round.
const READ_IN_A_ROUND: i64 = 100;

#[tokio::test]
async fn on_postgres_a_hold_round_reads_no_other_threads_of_its_user() {
    let url = postgres().await;
    let mut app = Embedded::with(|config| config.database.url = url.into()).await;
    let first = app.client.thread().await;
    app.end().await;
    // Postgres has no statistics of these rows: its plans must not depend on them.
    let fill = format!(
        "INSERT INTO threads (thread_id, tenant_id, user_id, session_id, title, created_at, updated_at)
        SELECT 'filled-' || n, tenant_id, user_id, 'filled-' || n, title, created_at, updated_at
        FROM threads CROSS JOIN generate_series(1, {OTHERS}) AS n WHERE thread_id = '{first}'"
    );
    assert_eq!(app.rows.change(&fill).await, Ok(u64::try_from(OTHERS).unwrap()));
    let before = app.rows.read_of("threads").await;
    let tools = probes(&app.ledger);
    app = app
        .redeploy_with(tools, |config| {
            config.database.max_connections = 4;
            config.approval.sweep = Duration::from_secs(3600);
        })
        .await;
    for round in 0..ROUNDS {
        let (thread, call) = app.held("pay", &round.to_string()).await;
        app.client.approve(&call).await.has_status(200);
        app.client.becomes(&call, "succeeded").await;
        app.scene.answers("Paid.");
        assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    }
    app.end().await;
    let read = app.rows.read_of("threads").await - before;
    assert!(read <= ROUNDS * READ_IN_A_ROUND, "{read} rows and index entries in {ROUNDS} rounds");
}
