//! A pooler between the server and Postgres that gives each transaction any one of a few sessions.

use futures::future::join_all;
use holdpoint::app::migrate;
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, Pgbouncer, Rows, call, empty_postgres, eventually, postgres};
use serde_json::json;
use std::time::Duration;

const SESSIONS: usize = 2;
const AT_ONCE: usize = 30;
/// The server renews it every 4 s.
const LEASE: Duration = Duration::from_secs(12);

#[tokio::test]
async fn on_postgres_everything_works_through_a_pooler_that_shares_few_sessions() {
    let url = postgres().await;
    let pooler = Pgbouncer::before(&url, SESSIONS).await;
    let change = |config: &mut Config| {
        config.database.url = format!("{}?statement-cache-capacity=0", pooler.url(&url)).into();
        config.limits.calls_per_step = AT_ONCE;
        config.approval.lease = LEASE;
        config.approval.sweep = Duration::from_millis(50);
    };
    // The first server creates the schema.
    let servers = [Embedded::with(&change).await, Embedded::with(&change).await];
    let [app, other] = &servers;
    let rows = Rows::open(&url).await;
    let thread = app.client.thread().await;
    app.scene.calls(&[call("l", "look", &json!({ "note": "1" }))]).answers("Seen.");
    assert_eq!(app.client.send_message(&thread, "look").await.text(), "Seen.");

    // Each call is decided at both servers at the same time.
    let all: Vec<_> =
        (0..AT_ONCE).map(|n| call(&format!("p{n}"), "pay", &json!({ "note": n.to_string() }))).collect();
    app.scene.calls(&all);
    let ids = app.client.send_message(&thread, "pay all").await.pending();
    assert_eq!(ids.len(), AT_ONCE);
    // A decider that gets a 503 because no connection is free retries.
    let approve = async |server: &Embedded, id: &str| {
        let answer = async || Some(server.client.approve(id).await).filter(|answer| answer.status != 503);
        eventually("there is a connection", answer).await
    };
    let deciders = ids.iter().flat_map(|id| servers.iter().map(move |server| (server, id)));
    for answer in join_all(deciders.map(|(server, id)| approve(server, id))).await {
        answer.has(200, "state", "succeeded");
    }
    let mut lines: Vec<_> = servers.iter().flat_map(|server| server.ledger.lines()).collect();
    lines.sort_unstable();
    let mut expected: Vec<_> = (0..AT_ONCE).map(|n| format!("pay {n}")).collect();
    expected.push("look 1".to_owned());
    expected.sort_unstable();
    assert_eq!(lines, expected, "each ran once");
    app.scene.answers("All paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "All paid.");

    // Sweeps, and a lease that is renewed for longer than its duration.
    let (_, late) = app.held("pay", "late").await;
    let (_, slow) = other.held("wait_for_me", "slow").await;
    let started = async {
        other.ledger.wait_started().await;
        let over = format!("UPDATE tool_calls SET expires_at = created_at WHERE tool_call_id = '{late}'");
        assert_eq!(rows.change(&over).await, Ok(1));
        app.client.becomes(&late, "expired").await;
        let renewed = "tool_calls WHERE name = 'wait_for_me' AND lease_until > started_at + 13000000";
        let renewed = async || (rows.count(renewed).await == 1).then_some(());
        eventually("the lease is renewed", renewed).await;
        other.ledger.release.add_permits(1);
    };
    // The earlier executions also added permits.
    other.ledger.started.forget_permits(AT_ONCE);
    let (answer, ()) = tokio::join!(other.client.approve(&slow), started);
    assert_eq!(answer.body["state"], "succeeded");

    let sessions = rows
        .count("pg_stat_activity WHERE application_name = 'holdpoint' AND datname = current_database()")
        .await;
    assert!((1..=SESSIONS as i64).contains(&sessions), "{sessions} sessions");
}

#[tokio::test]
async fn on_postgres_a_session_sharing_pooler_is_refused_with_cached_statements() {
    let url = empty_postgres().await;
    let pooler = Pgbouncer::before(&url, SESSIONS).await;
    let mut config = Config::default();
    config.database.url = pooler.url(&url).into();
    let refused = migrate(&config).await.unwrap_err().to_string();
    assert!(refused.starts_with("database.url: a pooler gives one session"), "{refused}");
    assert!(refused.contains("statement-cache-capacity=0"), "{refused}");
    assert_eq!(
        Rows::open(&url).await.count("pg_tables WHERE schemaname IN ('public', 'holdpoint')").await,
        0
    );
}
