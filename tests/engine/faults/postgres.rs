//! Postgres is down, or sessions to it are lost: an unacknowledged decision is not made, and an acknowledged
//! decision stays.

use super::assert_unavailable;
use holdpoint_testkit::{Cluster, CommitFate, Embedded, Proxy, Rows, eventually, postgres};
use serde_json::json;
use std::process::Command;
use std::time::Duration;

#[tokio::test]
async fn on_postgres_a_tool_that_ends_during_a_database_outage_is_settled_after_it() {
    let cluster = Cluster::start();
    let url = cluster.database().await;
    let app = Embedded::with(|config| {
        config.database.url = url.into();
        config.approval.wait = Duration::ZERO;
        config.approval.sweep = Duration::from_millis(100);
    })
    .await;
    let (thread, id) = app.held("wait_for_me", "10").await;
    let (_, other) = app.held("pay", "11").await;
    app.client.approve(&id).await.has_status(202);
    app.ledger.wait_started().await;
    cluster.stop_now();
    app.ledger.release.add_permits(1);
    // Each request waits some seconds for the database.
    assert_unavailable(&app.client.approve(&other).await);
    assert_unavailable(&app.client.get(&format!("/tool_calls/{id}")).await);
    cluster.start_again();
    let ready = async || (app.client.get("/readyz").await.status == 200).then_some(());
    eventually("the server has its database again", ready).await;
    assert_eq!(app.client.becomes(&id, "succeeded").await["output"], json!({ "waited": "10" }));
    app.scene.answers("Waited.");
    assert_eq!(app.client.resume(&thread).await.text(), "Waited.");
    assert_eq!(app.client.call(&other).await["state"], "pending");
    assert_eq!(app.ledger.lines(), ["wait_for_me 10"]);
}

#[tokio::test]
async fn on_postgres_a_server_without_a_database_at_startup_reports_it_and_exits() {
    let cluster = Cluster::start();
    let url = cluster.database().await;
    cluster.stop_now();
    let dir = tempfile::tempdir().unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
    server.args(["--bind", "127.0.0.1:0", "--database-url", &url]).env_clear().current_dir(dir.path());
    let output = server.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("database.url: "), "{stderr}");
}

#[tokio::test]
async fn on_postgres_a_read_that_times_out_is_cancelled_in_the_database_too() {
    let url = postgres().await;
    let app = Embedded::with(|config| {
        config.database.url = url.clone().into();
        config.approval.sweep = Duration::from_secs(3600);
    })
    .await;
    let lock = Rows::open(&url).await;
    lock.change("BEGIN; LOCK TABLE threads").await.unwrap();
    let (answer, ()) = tokio::join!(app.client.get("/threads"), app.rows.wait_for_lock_waiter());
    assert_unavailable(&answer);
    app.rows.wait_for_no_lock_waiter().await;
    lock.change("ROLLBACK").await.unwrap();
    app.client.get("/threads").await.has_status(200);
}

/// A decision that waits for a lock loses its session.
async fn a_decision_loses_its_session(lose: impl AsyncFnOnce(&Proxy, &Rows)) {
    let url = postgres().await;
    let (proxy, through) = Proxy::before(&url).await;
    let app = Embedded::with(|config| config.database.url = through.into()).await;
    // Inside its transaction, the locking session would keep seeing its first snapshot of `pg_stat_activity`.
    let (lock, eye) = (Rows::open(&url).await, Rows::open(&url).await);
    let (_, id) = app.held("pay", "10").await;
    lock.change("BEGIN; SELECT 1 FROM threads FOR UPDATE").await.unwrap();
    let lost = async {
        eye.wait_for_lock_waiter().await;
        lose(&proxy, &eye).await;
    };
    let (refused, ()) = tokio::join!(app.client.approve(&id), lost);
    assert_unavailable(&refused);
    lock.change("ROLLBACK").await.unwrap();
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.ledger.lines(), Vec::<String>::new());
    let again = app.client.approve(&id).await;
    again.has(200, "state", "succeeded");
    assert_eq!(again.header("idempotent-replayed"), None);
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_postgres_a_decision_whose_session_is_ended_by_an_operator_is_refused_and_not_made() {
    a_decision_loses_its_session(async |_, rows| {
        let end = "SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        assert_eq!(rows.all(end).await, [json!({ "ended": true })]);
    })
    .await;
}

#[tokio::test]
async fn on_postgres_a_decision_whose_connection_breaks_is_refused_and_not_made() {
    a_decision_loses_its_session(async |proxy, _| proxy.cut()).await;
}

/// Every session of the pools has an open transaction that the server does not know of.
async fn a_decision_finds_a_transaction_left_open(begin: &'static str) {
    let url = postgres().await;
    let (proxy, through) = Proxy::before(&url).await;
    let app = Embedded::with(|config| {
        config.database.url = through.into();
        config.approval.sweep = Duration::from_secs(3600);
    })
    .await;
    let rows = Rows::open(&url).await;
    let (_, id) = app.held("pay", "10").await;
    let busy = "pg_stat_activity WHERE datname = current_database() AND application_name = 'holdpoint'
                    AND state <> 'idle'";
    let at_rest = async || (rows.count(busy).await == 0).then_some(());
    eventually("no session is at work", at_rest).await;
    assert!(proxy.send_sql(begin).await >= 2, "chats and decisions have one each");
    let left_open = busy.replace("state <> 'idle'", "state = 'idle in transaction'");
    assert!(rows.count(&left_open).await >= 2);

    let approved = app.client.approve(&id).await;
    approved.has(200, "state", "succeeded");
    // Cutting the connections discards everything that is not committed.
    proxy.cut();
    let stored = "SELECT state, (SELECT count(*) FROM decisions) AS decisions FROM tool_calls";
    assert_eq!(rows.all(stored).await, [json!({ "state": "succeeded", "decisions": 1 })]);
    let repeat = async || Some(app.client.approve(&id).await).filter(|answer| answer.status != 503);
    let repeat = eventually("there are sessions again", repeat).await;
    assert_eq!((repeat.status, repeat.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_postgres_an_open_transaction_in_the_pool_loses_no_acknowledged_decision() {
    a_decision_finds_a_transaction_left_open("BEGIN").await;
}

#[tokio::test]
async fn on_postgres_an_open_read_only_transaction_in_the_pool_blocks_no_decision() {
    a_decision_finds_a_transaction_left_open("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1")
        .await;
}

#[tokio::test]
async fn on_postgres_without_a_free_connection_chats_get_503_and_decisions_succeed() {
    let url = postgres().await;
    let (proxy, through) = Proxy::before(&url).await;
    let app = Embedded::with(|config| {
        config.database.url = through.into();
        // One connection for chats, one for urgent work.
        config.database.max_connections = 2;
        config.approval.sweep = Duration::from_secs(3600);
    })
    .await;
    let (_, id) = app.held("pay", "10").await;
    let thread = app.client.thread().await;
    // The connection for chats is silent for longer than a request waits for one.
    proxy.strike("run.started", CommitFate::MadeInSilence);
    app.scene.answers("Not read.");
    let meanwhile = async {
        eventually("the connection is silent", async || proxy.has_struck().then_some(())).await;
        let (read, approved) = tokio::join!(app.client.get("/threads"), app.client.approve(&id));
        assert_unavailable(&read);
        approved.has(200, "state", "succeeded");
        app.client.get("/healthz").await.has_status(200);
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "hi"), meanwhile);
    assert_eq!(turn.refused(), (503, "unavailable".to_owned()), "{}", turn.raw);
    app.client.get("/threads").await.has_status(200);
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}
