//! A database that goes down under a running server, and comes back.

use futures::future::join_all;
use holdpoint::config::Config;
use holdpoint_testkit::{Client, Cluster, Embedded, JsonFields, Proxy, Rows, call, eventually, postgres};
use serde_json::json;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest time until a refusal.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn on_postgres_a_hold_and_the_server_survive_a_crash_of_the_database() {
    let cluster = Cluster::start();
    let url = cluster.database().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let (thread, id) = app.held("pay", "10").await;

    cluster.stop_now();
    let refused = app.client.approve(&id).await;
    refused.failed_with(503, "unavailable");
    assert_eq!(app.ledger.lines(), Vec::<String>::new(), "an approval that is not stored runs nothing");

    cluster.start_again();
    let ready = async || (app.client.get("/readyz").await.status == 200).then_some(());
    eventually("the server has its database again", ready).await;
    assert_eq!(app.client.call(&id).await["state"], "pending");
    let approved = app.client.approve(&id).await;
    approved.has(200, "state", "succeeded");
    app.scene.answers("Paid.");
    assert_eq!(app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

const CALLS: usize = 60;
const CRASHES: usize = 3;

/// The result of a decision that was retried until it got a final answer.
struct RetriedDecision {
    id: String,
    yes: bool,
    /// Whether the answer reports this decision as the one in force.
    acknowledged: bool,
    /// The number of attempts that found no database.
    outages: usize,
}

async fn decide(client: &Client, id: &str, yes: bool) -> RetriedDecision {
    let body = json!({ "toolCallId": id, "isValidated": yes });
    let mut outages = 0;
    let answer = async || {
        let answer = client.validate(&body).await;
        match answer.status {
            200 | 202 => Some(true),
            409 => Some(false),
            503 => {
                outages += 1;
                None
            }
            other => panic!("{other}: {:?}", answer.body),
        }
    };
    let acknowledged = eventually("the database is there again", answer).await;
    RetriedDecision { id: id.to_owned(), yes, acknowledged, outages }
}

#[tokio::test]
async fn on_postgres_every_acknowledged_decision_survives_database_crashes() {
    let cluster = Arc::new(Cluster::start());
    let url = cluster.database().await;
    let change = |config: &mut Config| {
        config.database.url = url.clone().into();
        config.limits.calls_per_step = CALLS;
        config.limits.pending_per_thread = CALLS as u64;
        config.approval.lease = Duration::from_secs(3);
        config.approval.sweep = Duration::from_millis(100);
    };
    let servers = [Embedded::with(&change).await, Embedded::with(&change).await];
    let client = &servers[0].client;
    let thread = client.thread().await;
    let calls: Vec<_> =
        (0..CALLS).map(|n| call(&format!("p{n}"), "pay", &json!({ "note": n.to_string() }))).collect();
    servers[0].scene.calls(&calls);
    let ids = client.send_message(&thread, "pay all").await.pending();
    assert_eq!(ids.len(), CALLS);

    // One server approves and the other rejects, for one call after the other, while the database restarts.
    let mut outcomes = Vec::new();
    for (n, ids) in ids.chunks(CALLS / (2 * CRASHES)).enumerate() {
        let deciders = ids.iter().flat_map(|id| [true, false].map(|yes| (id, yes)));
        let servers = &servers;
        let deciders = deciders.map(|(id, yes)| decide(&servers[usize::from(yes)].client, id, yes));
        let crash = async {
            if n.is_multiple_of(2) {
                let cluster = cluster.clone();
                // On another thread, because the servers run on this one.
                let crash = move || {
                    cluster.stop_now();
                    cluster.start_again();
                };
                tokio::task::spawn_blocking(crash).await.unwrap();
            }
        };
        let (answers, ()) = tokio::join!(join_all(deciders), crash);
        outcomes.extend(answers);
    }
    assert_eq!(outcomes.len(), 2 * CALLS);

    let at_rest = async || {
        let open = "tool_calls WHERE state IN ('pending', 'approved', 'executing')";
        (servers[0].rows.count(open).await == 0).then_some(())
    };
    eventually("every call is at its end", at_rest).await;
    let rows = servers[0]
        .rows
        .all("SELECT tool_call_id, state, verdict FROM tool_calls JOIN decisions USING (tool_call_id)")
        .await;
    assert_eq!(rows.len(), CALLS, "one decision each");
    let rows: HashMap<&str, _> = rows.iter().map(|row| (row.text("tool_call_id"), row)).collect();
    for RetriedDecision { id, yes, acknowledged, .. } in &outcomes {
        let row = rows[id.as_str()];
        assert_eq!((row["verdict"] == "approve") == *yes, *acknowledged, "{row}");
    }
    assert!(outcomes.iter().any(|outcome| outcome.outages > 0), "some came while the database was down");
    let mut lines: Vec<_> = servers.iter().flat_map(|server| server.ledger.lines()).collect();
    let ran = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), ran, "none ran twice");
    let of = |state: &str| rows.values().filter(|row| row["state"] == state).count();
    assert!(ran >= of("succeeded") && ran <= of("succeeded") + of("interrupted"), "{ran} ran: {rows:?}");
    assert_eq!(of("succeeded") + of("interrupted") + of("rejected"), CALLS, "{rows:?}");
    servers[0].scene.answers("All is said.");
    assert_eq!(client.resume(&thread).await.text(), "All is said.");
}

/// Makes the database refuse the end of every call and run, and counts the attempts in sequences, which a
/// rollback does not reset.
const NO_ENDS: &str = "
    CREATE SEQUENCE calls_tried; CREATE SEQUENCE turns_tried;
    CREATE FUNCTION no_end() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$ BEGIN
        PERFORM nextval(TG_ARGV[0]); RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full';
    END $$;
    CREATE TRIGGER no_end BEFORE UPDATE ON tool_calls FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL)
        EXECUTE FUNCTION no_end('calls_tried');
    CREATE TRIGGER no_end BEFORE UPDATE ON runs FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL)
        EXECUTE FUNCTION no_end('turns_tried')";

#[tokio::test]
async fn on_postgres_the_ends_of_a_tool_and_a_turn_are_retried_until_the_database_accepts_them() {
    let url = postgres().await;
    let app = Embedded::with(|config| config.database.url = url.into()).await;
    let thread = app.client.thread().await;
    app.rows.change(NO_ENDS).await.unwrap();
    app.scene.calls(&[call("a", "look", &json!({ "note": "1" }))]).answers("Seen.");
    let database = async {
        for (tried, table) in [("calls_tried", "tool_calls"), ("turns_tried", "runs")] {
            let twice = format!("{tried} WHERE last_value >= 2");
            let refused = async || (app.rows.count(&twice).await == 1).then_some(());
            eventually("it was tried again", refused).await;
            app.rows.change(&format!("DROP TRIGGER no_end ON {table}")).await.unwrap();
        }
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "look"), database);
    assert_eq!(turn.codes(), "fbc9aef0ed", "{}", turn.raw);
    let rows = "SELECT runs.status, tool_calls.state FROM runs JOIN tool_calls USING (run_id)";
    assert_eq!(app.rows.all(rows).await, [json!({ "status": "completed", "state": "succeeded" })]);
    assert_eq!(app.ledger.lines(), ["look 1"]);
}

#[tokio::test]
async fn on_postgres_a_decision_that_waits_too_long_for_a_lock_is_refused_and_not_made() {
    let app = {
        let url = postgres().await;
        Embedded::with(|config| config.database.url = url.into()).await
    };
    let (_, id) = app.held("pay", "10").await;
    assert!(app.rows.change("BEGIN; SELECT 1 FROM threads FOR UPDATE").await.is_ok());
    let refused =
        timeout(PATIENCE, app.client.approve(&id)).await.expect("the decision does not wait forever");
    refused.failed_with(503, "unavailable");
    assert!(app.rows.change("ROLLBACK").await.is_ok());
    assert_eq!(app.client.call(&id).await["state"], "pending");
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
    assert_eq!(app.ledger.lines(), ["pay 10"]);
}

#[tokio::test]
async fn on_postgres_a_silent_database_connection_blocks_no_request_for_long() {
    let url = postgres().await;
    let (proxy, through) = Proxy::before(&url).await;
    let app = Embedded::with(|config| {
        config.database.url = through.into();
        // Two of the connections are for urgent work; the two decisions occupy both.
        config.database.max_connections = 8;
    })
    .await;
    // One session holds the lock. Inside its transaction, it would keep seeing its first snapshot of
    // `pg_stat_activity`.
    let (beside, eye) = (Rows::open(&url).await, Rows::open(&url).await);
    let (_, one) = app.held("pay", "1").await;
    let (_, other) = app.held("pay", "2").await;
    beside.change("BEGIN; SELECT 1 FROM threads FOR UPDATE").await.unwrap();
    let silent = Cell::new(false);
    let swallow = async {
        let waiting = "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let both = async || (eye.count(waiting).await == 2).then_some(());
        eventually("both decisions wait for the lock", both).await;
        proxy.swallow();
        silent.set(true);
    };
    // Each decision is retried until then, because a decision waits at most 5 s for a lock.
    let decided = async |id: &str| loop {
        let answer = app.client.approve(id).await;
        if silent.get() {
            break answer;
        }
    };
    let (first, second, ()) = tokio::join!(decided(&one), decided(&other), swallow);
    for refused in [first, second] {
        refused.failed_with(503, "unavailable");
    }
    beside.change("ROLLBACK").await.unwrap();
    let app = &app;
    let again = async |id: String| {
        let answer = async || Some(app.client.approve(&id).await).filter(|answer| answer.status != 503);
        eventually("there are connections again", answer).await
    };
    for id in [one, other] {
        assert_eq!(again(id).await.body["state"], "succeeded");
    }
    let ready = async || (app.client.get("/readyz").await.status == 200).then_some(());
    eventually("all pools are well", ready).await;
    let mut lines = app.ledger.lines();
    lines.sort_unstable();
    assert_eq!(lines, ["pay 1", "pay 2"]);
}
