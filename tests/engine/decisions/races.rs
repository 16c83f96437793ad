//! Decisions that race each other and the deadline.

use futures::future::join_all;
use holdpoint::config::Config;
use holdpoint_testkit::{Embedded, JsonFields, Rows, call, postgres};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The number of calls that are decided concurrently, each by three deciders.
const AT_ONCE: usize = 20;
const BATCHES: usize = 10;
const CALLS: usize = AT_ONCE * BATCHES;

/// The current time in microseconds since the epoch.
const NOW_SQLITE: &str = "CAST(unixepoch('now', 'subsec') * 1000000 AS BIGINT)";
const NOW_POSTGRES: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

#[tokio::test]
async fn b13_one_of_approval_rejection_and_expiry_wins_each_call_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    race(format!("sqlite://{}/rows.db", dir.path().display()), NOW_SQLITE).await;
}

#[tokio::test]
async fn b13_one_of_approval_rejection_and_expiry_wins_each_call_on_postgres() {
    let url = postgres().await;
    race(url, NOW_POSTGRES).await;
}

async fn race(url: String, now: &str) {
    let change = |config: &mut Config| {
        config.database.url = url.clone().into();
        config.limits.calls_per_step = CALLS;
        config.limits.pending_per_thread = CALLS as u64;
    };
    let app = Embedded::with(&change).await;
    let other = if url.starts_with("postgres:") { Some(Embedded::with(&change).await) } else { None };
    let thread = app.client.thread().await;
    let calls: Vec<_> =
        (0..CALLS).map(|n| call(&format!("p{n}"), "pay", &json!({ "note": n.to_string() }))).collect();
    app.scene.calls(&calls);
    let ids = app.client.send_message(&thread, "pay all").await.pending();
    assert_eq!(ids.len(), CALLS);

    let mut answers = Vec::new();
    for (batch, ids) in ids.chunks(AT_ONCE).enumerate() {
        // The deadlines pass one after the other while the decisions arrive: the first call has already
        // expired, and the last one does not expire.
        let first = batch * AT_ONCE;
        let spread = format!(
            "UPDATE tool_calls SET expires_at = CASE ordinal WHEN {first} THEN created_at
                 ELSE {now} + (ordinal - {first}) * 25000 END
             WHERE ordinal >= {first} AND ordinal < {first} + {AT_ONCE} - 1"
        );
        assert_eq!(app.rows.change(&spread).await, Ok(AT_ONCE as u64 - 1));
        let deciders = ids.iter().enumerate().flat_map(|(n, id)| {
            // The order is left to chance; rotating the verdicts varies which one is sent first.
            let mut verdicts = [true, false, true];
            verdicts.rotate_left(n % 3);
            verdicts.map(|yes| {
                // Every other decision goes to the other server, if there is one.
                let elsewhere = other.as_ref().filter(|_| (n / 3).is_multiple_of(2) == yes);
                let client = elsewhere.map_or(&app.client, |other| &other.client);
                async move {
                    let answer = if yes { client.approve(id).await } else { client.reject(id).await };
                    (id, yes, answer)
                }
            })
        });
        answers.extend(join_all(deciders).await);
    }
    assert_eq!(answers.len(), 3 * CALLS);

    let rows = app
        .rows
        .all("SELECT tool_call_id, state, verdict, actor FROM tool_calls JOIN decisions USING (tool_call_id)")
        .await;
    assert_eq!(rows.len(), CALLS, "one decision each");
    let rows: HashMap<&str, &Value> = rows.iter().map(|row| (row.text("tool_call_id"), row)).collect();
    assert_eq!(rows.len(), CALLS);
    let mut fresh: HashMap<&str, u32> = HashMap::new();
    for (id, yes, answer) in &answers {
        let row = rows[id.as_str()];
        let (state, verdict) = (row.text("state"), row.text("verdict"));
        let actor = if verdict == "expire" { "system:expiry" } else { "user:local" };
        assert_eq!(row["actor"], actor, "{row}");
        let (same, ends) = match verdict {
            "approve" => (*yes, "succeeded"),
            "reject" => (!*yes, "rejected"),
            _ => (false, "expired"),
        };
        assert_eq!(state, ends, "{row}");
        if same {
            assert_eq!((answer.status, &answer.body["state"]), (200, &row["state"]), "{:?}", answer.body);
            *fresh.entry(id).or_default() += u32::from(answer.header("idempotent-replayed").is_none());
        } else {
            let code = if verdict == "expire" { "expired" } else { "already_decided" };
            assert_eq!(answer.failure(), (409, code), "{:?}", answer.body);
            assert_eq!(answer.body["error"]["details"]["decision"]["decision"], verdict);
            assert_eq!(answer.body["error"]["details"]["decision"]["by"], actor);
        }
    }
    let of = |verdict: &str| rows.values().filter(|row| row["verdict"] == verdict).count();
    assert!(fresh.values().all(|count| *count == 1), "{fresh:?}");
    assert_eq!(fresh.len(), of("approve") + of("reject"), "each decision has one decider");
    assert_eq!(of("approve") + of("reject") + of("expire"), CALLS);
    assert!(of("expire") >= BATCHES && of("approve") + of("reject") >= BATCHES);
    let mut lines = app.ledger.lines();
    lines.extend(other.iter().flat_map(|other| other.ledger.lines()));
    assert_eq!(lines.len(), of("approve"));
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), of("approve"), "none ran twice");
    assert_eq!(app.client.get(&format!("/threads/{thread}")).await.body["pending_count"], 0);
    if url.starts_with("postgres:") {
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(app.rows.all(deadlocks).await, [json!({ "deadlocks": 0 })]);
    }
}

#[tokio::test]
async fn on_postgres_a_decision_locks_the_thread_then_the_run_then_the_call() {
    const TABLES: [&str; 3] = ["threads", "runs", "tool_calls"];
    let url = postgres().await;
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    // One session holds a lock, and one looks: a transaction keeps its first snapshot of the activity.
    let (holder, eye) = (Rows::open(&url).await, Rows::open(&url).await);
    for (n, table) in TABLES.into_iter().enumerate() {
        let (thread, id) = app.held("pay", &n.to_string()).await;
        let locked = |table: &str| format!("SELECT 1 FROM {table} WHERE thread_id = '{thread}' FOR UPDATE");
        holder.change(&format!("BEGIN; {}", locked(table))).await.unwrap();
        let look = async {
            eye.wait_for_lock_waiter().await;
            for (m, other) in TABLES.into_iter().enumerate().filter(|(m, _)| *m != n) {
                let free = eye.change(&format!("{} NOWAIT", locked(other))).await.is_ok();
                assert_eq!(free, m > n, "{other}, while {table} is locked elsewhere");
            }
            holder.change("ROLLBACK").await.unwrap();
        };
        let (approved, ()) = tokio::join!(app.client.approve(&id), look);
        assert_eq!(approved.body["state"], "succeeded", "{:?}", approved.body);
    }
}
