//! The numbering of events on Postgres.

use super::seqs;
use futures::future::join_all;
use holdpoint_testkit::{Embedded, JsonFields, Rows, Sse, call, empty_postgres, eventually, postgres};
use serde_json::json;

/// The number of events that one pass numbers.
const PASS: i64 = 1000;
/// The run of the events that the dead process left.
const RUN: &str = "0190a5b0-0000-7000-8000-000000000000";

/// Writes events of this thread without numbers, as a process that dies at this moment leaves them.
/// The second connection keeps a transaction open that locks the last event.
async fn leave_behind(rows: &Rows, lock: &Rows, thread: &str, many: i64) {
    let insert = format!(
        "INSERT INTO events (event_id, type, at, actor, tenant_id, user_id, session_id, thread_id, run_id, data)
            SELECT 'left-' || n, 'run.resumed', n, 'user:local', 'default', 'local', '{thread}', '{thread}', '{RUN}',
            '{{}}' FROM generate_series(1, {many}) AS n ORDER BY n"
    );
    // No numbering pass starts until all events exist and the last one is locked.
    lock.change("BEGIN; UPDATE event_sequence SET last = last").await.unwrap();
    assert_eq!(rows.change(&insert).await, Ok(u64::try_from(many).unwrap()));
    let last = format!("BEGIN; SELECT 1 FROM events WHERE event_id = 'left-{many}' FOR UPDATE");
    rows.change(&last).await.unwrap();
    lock.change("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn on_postgres_events_with_a_number_reach_readers_while_the_next_pass_is_blocked() {
    let url = postgres().await;
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    let thread = app.client.thread().await;
    app.scene.answers("Hello.");
    let turn = app.client.send_message(&thread, "hello").await;
    let run = turn.headers["x-run-id"].to_str().unwrap();
    let path = format!("/runs/{run}/events");
    assert_eq!(app.client.get(&path).await.body.list("results").len(), 2);
    let mut stream = Sse::open(&app.client, "/events").await;
    let elsewhere = app.client.thread().await;
    let lock = Rows::open(&url).await;
    leave_behind(&app.rows, &lock, &elsewhere, PASS + 1).await;

    let received = stream.take(usize::try_from(PASS).unwrap()).await;
    assert_eq!(seqs(&received), (3..PASS + 3).collect::<Vec<i64>>());
    // A request about a run does not wait for the numbers of another run's events.
    let answer = app.client.get(&path).await;
    assert_eq!((answer.status, answer.body.list("results").len()), (200, 2));
    app.rows.change("ROLLBACK").await.unwrap();
    assert_eq!(seqs(&stream.take(1).await), [PASS + 3]);
}

#[tokio::test]
async fn on_postgres_the_events_of_a_thread_are_numbered_in_the_order_in_which_they_were_written() {
    let url = postgres().await;
    let app = Embedded::with(|config| config.database.url = url.clone().into()).await;
    let thread = app.client.thread().await;
    let lock = Rows::open(&url).await;
    let many = 3 * PASS + 7;
    leave_behind(&app.rows, &lock, &thread, many).await;
    app.rows.change("ROLLBACK").await.unwrap();
    let mut stream = Sse::open(&app.client, "/events?after=0").await;
    let received = stream.take(usize::try_from(many).unwrap()).await;
    assert_eq!(seqs(&received), (1..=many).collect::<Vec<i64>>());
    let disordered = "events WHERE event_id <> 'left-' || seq";
    assert_eq!(app.rows.count(disordered).await, 0);
}

/// The turns of each server, one after the other.
const TURNS: usize = 6;

#[tokio::test]
async fn on_postgres_passes_of_several_servers_at_once_leave_no_gap_and_repeat_no_number() {
    let url = empty_postgres().await;
    let rows = Rows::open(&url).await;
    let role = "slow_numbering";
    rows.change(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
    rows.change(&format!("CREATE SCHEMA holdpoint AUTHORIZATION {role}")).await.unwrap();
    let slow = url.replace("postgres@", &format!("{role}@"));
    let server = async || Embedded::with(|config| config.database.url = slow.clone().into()).await;
    let servers = [server().await, server().await, server().await];
    // Each pass stops between the moment whose rows it sees and its lock, so that other passes fall in between.
    let policy = "ALTER TABLE event_sequence ENABLE ROW LEVEL SECURITY;
        ALTER TABLE event_sequence FORCE ROW LEVEL SECURITY;
        CREATE POLICY slow ON event_sequence USING (pg_sleep(0.03) IS NOT NULL)";
    rows.change(policy).await.unwrap();
    // Without the guards a wrong pass does not fail, and leaves its wrong numbers.
    rows.drop_guards("events").await;
    let writes = async |app: &Embedded| {
        for n in 0..TURNS {
            app.scene.calls(&[call("a", "look", &json!({ "note": n.to_string() }))]).answers("Done.");
            let turn = app.client.send_message(&app.client.thread().await, "look").await;
            assert_eq!(turn.status, 200, "{}", turn.raw);
        }
    };
    join_all(servers.iter().map(writes)).await;
    let numbered = async || (rows.count("events WHERE seq IS NULL").await == 0).then_some(());
    eventually("all events have numbers", numbered).await;
    let found = rows.all("SELECT count(*) AS events, max(seq) AS last FROM events").await;
    let last = rows.all("SELECT \"last\" AS counted FROM event_sequence").await;
    assert_eq!(
        (&found[0]["events"], &found[0]["last"]),
        (&found[0]["last"], &last[0]["counted"]),
        "{found:?}"
    );
    let backwards = "events AS later JOIN events AS earlier USING (thread_id)
        WHERE later.place > earlier.place AND later.seq < earlier.seq";
    assert_eq!(rows.count(backwards).await, 0);
}
