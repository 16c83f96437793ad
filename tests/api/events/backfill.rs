//! A reader that reconnects after many events of other users.

use super::{office, seqs, types};
use holdpoint_testkit::{Client, Embedded, JsonFields, Rows, Sse, postgres, probes};
use serde_json::Value;

/// One of this many events belongs to the reader.
const OTHERS: usize = 100;
/// The number of events that belong to the reader.
const RECEIVED: usize = 60;
/// The maximum number of rows that the server may read for each event that it delivers.
const RATIO: i64 = 10;

/// Clients for two users, and the thread of a held call of `pay` that belongs to `alice`.
struct HeldThread {
    alice: Client,
    nobody: Client,
    thread: String,
}

/// Inserts the events of a held call among many events of another user of the same tenant.
async fn crowd(app: &Embedded) -> HeldThread {
    let nobody = app.client.clone();
    let (alice, bob) = (nobody.as_user("acme", "alice", &[]), nobody.as_user("acme", "bob", &[]));
    let thread = alice.thread().await;
    app.scene.calls(&[holdpoint_testkit::call("p", "pay", &serde_json::json!({ "note": "1" }))]);
    let call = alice.send_message(&thread, "please").await.pending().pop().unwrap();
    let run = alice.run_of(&call).await;
    let others = bob.thread().await;
    all_numbered(&app.rows).await;
    let own = format!("n % {OTHERS} = 0");
    let fill = format!(
        "INSERT INTO events (event_id, seq, type, at, actor, tenant_id, user_id, session_id, thread_id, run_id,
            tool_call_id, held_tool, data)
        WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < {all})
        SELECT 'filled-' || n, n + 4, 'tool.called', n, 'user:x', 'acme',
            CASE WHEN {own} THEN 'alice' ELSE 'bob' END, CASE WHEN {own} THEN '{thread}' ELSE '{others}' END,
            CASE WHEN {own} THEN '{thread}' ELSE '{others}' END, CASE WHEN {own} THEN '{run}' END,
            CASE WHEN {own} THEN '{call}' END, CASE WHEN {own} THEN 'pay' END, '{{}}' FROM numbers",
        all = OTHERS * RECEIVED
    );
    assert_eq!(app.rows.change(&fill).await, Ok(u64::try_from(OTHERS * RECEIVED).unwrap()));
    let last = format!("UPDATE event_sequence SET last = {}", OTHERS * RECEIVED + 4);
    assert_eq!(app.rows.change(&last).await, Ok(1));
    HeldThread { alice, nobody, thread }
}

async fn all_numbered(rows: &Rows) {
    let numbered = async || (rows.count("events WHERE seq IS NULL").await == 0).then_some(());
    holdpoint_testkit::eventually("all have their number", numbered).await;
    assert_eq!(rows.count("events").await, 4);
}

/// The events after the fourth, which is the last event that the server itself wrote.
async fn catches_up(client: &Client, path: &str) -> Vec<Value> {
    Sse::open(client, &format!("{path}after=4")).await.take(RECEIVED).await
}

#[tokio::test]
async fn on_postgres_at_most_ten_rows_are_read_for_each_event_that_a_reader_missed() {
    let url = postgres().await;
    let mut app = Embedded::with(|config| {
        office(config);
        config.database.url = url.into();
    })
    .await;
    let HeldThread { alice, nobody, thread } = crowd(&app).await;
    assert!(app.rows.change("ANALYZE").await.is_ok());
    let own: Vec<i64> = (1..=RECEIVED).map(|n| i64::try_from(n * OTHERS + 4).unwrap()).collect();
    let operator = nobody.as_user("acme", "olga", &["operator"]);
    let approver = nobody.as_user("acme", "carol", &["chief"]);
    for (client, path) in [
        (None, String::new()),
        (Some(&alice), "/events?".to_owned()),
        (Some(&approver), "/events?".to_owned()),
        (Some(&operator), format!("/events?thread_id={thread}&")),
        (Some(&operator), format!("/events?session_id={thread}&")),
        (Some(&approver), format!("/events?thread_id={thread}&")),
    ] {
        app.end().await;
        let before = app.rows.read_of("events").await;
        let tools = probes(&app.ledger);
        app = app.redeploy_with(tools, office).await;
        let base = app.client.base.clone();
        let at = |client: &Client| Client { base: base.clone(), ..client.clone() };
        let received = match client {
            Some(client) => catches_up(&at(client), &path).await,
            None => Vec::new(),
        };
        app.end().await;
        let rows = app.rows.read_of("events").await - before;
        if client.is_some() {
            assert_eq!(seqs(&received), own, "{path}");
        }
        // Each look for events without a number may read the dead index entries of the four that had none.
        let most = RATIO * i64::try_from(received.len()).unwrap() + 60;
        assert!(rows <= most, "{path}: {rows} rows for {} events", received.len());
    }
}

#[tokio::test]
async fn a_reader_of_few_among_many_events_gets_all_of_its_own_and_then_new_ones() {
    let app = Embedded::with(office).await;
    let HeldThread { alice, nobody, thread } = crowd(&app).await;
    let approver = nobody.as_user("acme", "carol", &["chief"]);
    let operator = nobody.as_user("acme", "olga", &["operator"]);
    let mut streams = Vec::new();
    for (client, path) in [
        (&alice, "/events?".to_owned()),
        (&approver, "/events?".to_owned()),
        (&approver, format!("/events?thread_id={thread}&")),
        (&operator, format!("/events?thread_id={thread}&")),
        (&operator, format!("/events?session_id={thread}&")),
    ] {
        let mut stream = Sse::open(client, &format!("{path}after=4")).await;
        let received = stream.take(RECEIVED).await;
        assert_eq!(seqs(&received)[..2], [104, 204], "{path}");
        streams.push(stream);
    }
    let call = &alice.get(&format!("/threads/{thread}/approvals")).await.body["results"][0];
    alice.reject(call.text("tool_call_id")).await.has_status(200);
    for mut stream in streams {
        assert_eq!(types(&stream.take(1).await), ["tool.rejected"]);
    }
}
