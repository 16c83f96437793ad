//! A primary that dies while calls are decided, and its synchronous standby.

use futures::future::join_all;
use holdpoint::config::Config;
use holdpoint_testkit::{Client, Embedded, Failover, JsonFields, Rows, call, eventually};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

/// The threads and the calls of each.
const THREADS: usize = 6;
const CALLS: usize = 10;
/// The threads that are decided while all is well, until the replication stops, without the replication, and after
/// the death of the primary.
const WELL: Range<usize> = 0..1;
const UNTIL: Range<usize> = 1..3;
const WITHOUT: Range<usize> = 3..4;
const AFTER: Range<usize> = 4..THREADS;
/// The number of answers after which the replication stops.
const ANSWERS: usize = 5;
/// Longer than the failover.
const LEASE: Duration = Duration::from_secs(15);

/// A held call.
struct HeldCall {
    id: String,
    note: String,
    /// The verdict that its decider will send.
    yes: bool,
}

/// Has the model of this server call tools in one thread. The tools are at work until the primary is dead. Of the
/// decisions two of three are approvals, and all of them without the replication.
async fn held(app: &Embedded, thread: usize, count: usize) -> Vec<HeldCall> {
    let notes: Vec<_> = (0..count).map(|n| format!("{thread}-{n}")).collect();
    let calls = notes.iter().map(|note| call(note, "wait_for_me", &json!({ "note": note })));
    app.scene.calls(&calls.collect::<Vec<_>>());
    let ids = app.client.send_message(&app.client.thread().await, "pay all").await.pending();
    assert_eq!(ids.len(), count);
    let held = ids.into_iter().zip(notes).enumerate();
    held.map(|(n, (id, note))| HeldCall { id, note, yes: WITHOUT.contains(&thread) || n % 3 != 2 }).collect()
}

/// The way of a decision to its acknowledgement.
struct AcknowledgedDecision<'a> {
    call: &'a HeldCall,
    /// The number of attempts without an answer about the decision.
    failures: usize,
}

/// Sends a decision until it is acknowledged.
async fn decide<'a>(client: &Client, call: &'a HeldCall) -> AcknowledgedDecision<'a> {
    let body = json!({ "toolCallId": call.id, "isValidated": call.yes });
    let mut failures = 0;
    let acknowledged = async || {
        let answer = client.validate(&body).await;
        match answer.status {
            200 | 202 => Some(()),
            503 => {
                failures += 1;
                None
            }
            other => panic!("{other}: {:?}", answer.body),
        }
    };
    eventually("the decision is acknowledged", acknowledged).await;
    AcknowledgedDecision { call, failures }
}

#[tokio::test]
async fn on_postgres_no_acknowledged_decision_is_lost_and_nothing_runs_twice_when_a_standby_takes_over() {
    // On another thread, because the start takes seconds.
    let mut servers = tokio::task::spawn_blocking(Failover::start).await.unwrap();
    let url = servers.database().await;
    let change = |config: &mut Config| {
        config.database.url = url.clone().into();
        config.limits.calls_per_step = CALLS;
        config.approval.wait = Duration::ZERO;
        config.approval.lease = LEASE;
        config.approval.sweep = Duration::from_millis(100);
    };
    let apps = [Embedded::with(&change).await, Embedded::with(&change).await];
    let mut calls = Vec::new();
    for thread in 0..THREADS {
        calls.push(held(&apps[thread % apps.len()], thread, CALLS).await);
    }
    let undecided = held(&apps[0], THREADS, 2).await;
    let decide_all = async |threads: Range<usize>, answered: &dyn Fn()| {
        let calls = threads.flat_map(|thread| &calls[thread]);
        let decisions = calls.enumerate().map(async |(n, call)| {
            let decided = decide(&apps[n % apps.len()].client, call).await;
            answered();
            decided
        });
        join_all(decisions).await
    };
    let eye = Rows::open(&url).await;
    let primary = eye.all("SELECT inet_server_port()").await;

    let mut decided = decide_all(WELL, &|| ()).await;
    assert!(decided.iter().all(|decided| decided.failures == 0));
    let (answers, is_muted, is_dead) = (Cell::new(0), Cell::new(false), Cell::new(false));
    let once = async |happened: &Cell<bool>, threads| {
        eventually("these decisions begin", async || happened.get().then_some(())).await;
        decide_all(threads, &|| ()).await
    };
    let death = async {
        eventually("some are decided", async || (answers.get() >= ANSWERS).then_some(())).await;
        servers.mute();
        is_muted.set(true);
        // A commit of a decision, which has not reached the standby.
        let waiting = "pg_stat_activity JOIN pg_locks USING (pid) WHERE wait_event = 'SyncRep'
            AND relation = 'decisions'::regclass AND mode = 'RowExclusiveLock'";
        let waits = async || (eye.count(waiting).await > 0).then_some(());
        eventually("a commit waits for the standby", waits).await;
        servers.kill_primary();
        is_dead.set(true);
        apps.iter().for_each(|app| app.ledger.release.add_permits(THREADS * CALLS));
    };
    let count = || answers.set(answers.get() + 1);
    let (until, without, after, ()) =
        tokio::join!(decide_all(UNTIL, &count), once(&is_muted, WITHOUT), once(&is_dead, AFTER), death);
    decided.extend(until.into_iter().chain(without).chain(after));
    assert!(decided.iter().any(|decided| decided.failures > 0), "some were repeated");
    assert_eq!(decided.len(), THREADS * CALLS);

    let rows = Rows::open(&url).await;
    assert_ne!(rows.all("SELECT inet_server_port()").await, primary);
    let at_rest = async || {
        let open = "tool_calls JOIN decisions USING (tool_call_id) WHERE state IN ('approved', 'executing')";
        (rows.count(open).await == 0).then_some(())
    };
    eventually("every decided call is at its end", at_rest).await;
    let stored = rows
        .all("SELECT tool_call_id, state, verdict FROM tool_calls LEFT JOIN decisions USING (tool_call_id)")
        .await;
    assert_eq!(stored.len(), THREADS * CALLS + undecided.len(), "at most one decision each");
    let stored: HashMap<&str, &Value> = stored.iter().map(|row| (row.text("tool_call_id"), row)).collect();
    let effects: Vec<_> = apps.iter().flat_map(|app| app.ledger.lines()).collect();
    let ran = |call: &HeldCall| {
        effects.iter().filter(|line| line.split_once(' ').is_some_and(|(_, note)| note == call.note)).count()
    };
    for AcknowledgedDecision { call, .. } in decided {
        let (row, ran) = (stored[call.id.as_str()], ran(call));
        assert_eq!(row["verdict"], if call.yes { "approve" } else { "reject" }, "{row}");
        match row.text("state") {
            "succeeded" if call.yes => assert_eq!(ran, 1, "{row}"),
            "interrupted" if call.yes => assert!(ran <= 1, "{row} ran {ran} times"),
            "rejected" if !call.yes => assert_eq!(ran, 0, "{row}"),
            _ => panic!("{row} ran {ran} times"),
        }
    }
    for call in &undecided {
        assert_eq!((&stored[call.id.as_str()]["state"], ran(call)), (&json!("pending"), 0));
    }
    for app in &apps {
        let ready = async || (app.client.get("/readyz").await.status == 200).then_some(());
        eventually("the server is ready without a restart", ready).await;
        let (_, id) = app.held("pay", "last").await;
        app.client.approve(&id).await;
        app.client.becomes(&id, "succeeded").await;
    }
}
