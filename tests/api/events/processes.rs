//! Several servers on one Postgres: the events of one server reach the readers of the other.

use super::{seqs, types};
use futures::future::join_all;
use holdpoint_testkit::{Deployment, JsonFields, Rows, Sse, eventually, postgres};
use serde_json::Value;
use std::collections::HashMap;

/// The database sessions that listen for notifications.
const LISTENING: &str = "pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'";

async fn listening(rows: &Rows, many: i64) {
    let listen = async || (rows.count(LISTENING).await == many).then_some(());
    eventually(&format!("{many} listen"), listen).await;
}

#[tokio::test]
async fn on_postgres_events_of_one_process_reach_readers_at_the_other() {
    let deployment = Deployment::on_postgres().await;
    let servers = [deployment.start("30s"), deployment.start("30s")];
    deployment.release();
    let rows = deployment.rows().await;
    listening(&rows, 2).await;
    let mut streams = [
        Sse::open(&servers[0].client, "/events?after=0").await,
        Sse::open(&servers[1].client, "/events?after=0").await,
    ];
    // The servers write at the same time, and each decides the call that the other holds.
    let (one, other) = (&servers[0].client, &servers[1].client);
    let (threads, holds) = (join_all([one.thread(), other.thread()]).await, ["1", "2"]);
    let (first, second) = tokio::join!(
        deployment.hold(one, &threads[0], holds[0]),
        deployment.hold(other, &threads[1], holds[1])
    );
    let (yes, no) = tokio::join!(other.approve(&first), one.reject(&second));
    assert_eq!((yes.status, no.status), (200, 200));
    let all = usize::try_from(rows.count("events").await).unwrap();
    assert_eq!(all, 12);
    let [received, again] = &mut streams;
    let (received, again) = tokio::join!(received.take(all), again.take(all));
    assert_eq!(received, again);
    assert_eq!(seqs(&received), (1..=12).collect::<Vec<i64>>());
    let of_first: Vec<Value> =
        received.into_iter().filter(|event| event["tool_call_id"] == first.as_str()).collect();
    let expected =
        ["tool.called", "tool.requires_approval", "tool.approved", "tool.started", "tool.succeeded"];
    assert_eq!(types(&of_first), expected);
}

#[tokio::test]
async fn on_postgres_events_without_a_notification_are_found_by_polling() {
    let url = postgres().await;
    let deployment = Deployment::at(format!("{url}?statement-cache-capacity=0"));
    let servers = [deployment.start("30s"), deployment.start("30s")];
    let rows = deployment.rows().await;
    let mut stream = Sse::open(&servers[1].client, "/events").await;
    let thread = servers[0].client.thread().await;
    deployment.hold(&servers[0].client, &thread, "1").await;
    let received = stream.until("run.waiting").await;
    assert_eq!(types(&received), ["run.started", "tool.called", "tool.requires_approval", "run.waiting"]);
    assert_eq!(rows.count(LISTENING).await, 0, "no server listens through a transaction pooler");
}

#[tokio::test]
async fn on_postgres_a_server_with_a_pooler_listens_on_the_direct_url() {
    let url = postgres().await;
    let deployment = Deployment::at(format!("{url}?statement-cache-capacity=0"));
    let _server = deployment.start_with("30s", &[("HOLDPOINT_DATABASE__DIRECT_URL", &url)]);
    listening(&deployment.rows().await, 1).await;
}

#[tokio::test]
async fn on_postgres_a_server_whose_listener_is_cut_off_listens_again_and_misses_nothing() {
    let deployment = Deployment::on_postgres().await;
    let servers = [deployment.start("30s"), deployment.start("30s")];
    let rows = deployment.rows().await;
    listening(&rows, 2).await;
    let mut stream = Sse::open(&servers[1].client, "/events").await;
    let thread = servers[0].client.thread().await;
    let cut = format!("SELECT pid, pg_terminate_backend(pid) FROM {LISTENING}");
    let first = deployment.hold(&servers[0].client, &thread, "1").await;
    assert_eq!(rows.all(&cut).await.len(), 2);
    let second = deployment.hold(&servers[0].client, &thread, "2").await;
    let received = [stream.until("run.waiting").await, stream.until("run.waiting").await].concat();
    let requested = received.iter().filter(|event| event["type"] == "tool.requires_approval");
    let requested: Vec<&str> = requested.map(|event| event.text("tool_call_id")).collect();
    assert_eq!(requested, [first, second]);
    listening(&rows, 2).await;
}

#[tokio::test]
#[ignore = "measures, and finds nothing wrong; with --nocapture it says how long an event takes to the other process"]
async fn on_postgres_how_long_an_event_takes_from_one_process_to_a_reader_at_the_other() {
    const TURNS: usize = 500;
    let deployment = Deployment::on_postgres().await;
    let servers = [deployment.start("30s"), deployment.start("30s")];
    listening(&deployment.rows().await, 2).await;
    let thread = servers[0].client.thread().await;
    let mut stream = Sse::open(&servers[1].client, "/events").await;
    let says = async {
        for _ in 0..TURNS {
            servers[0].client.send_message(&thread, "hello").await;
        }
    };
    let receives = async {
        let mut stream_text = Vec::new();
        while stream_text.len() < 2 * TURNS {
            let event = stream.next().await.unwrap();
            stream_text.push((event["seq"].as_i64().unwrap(), micros_now()));
        }
        stream_text
    };
    let ((), stream_text) = tokio::join!(says, receives);
    // The `at` of an event is the start of its transaction, by the clock of this machine.
    let rows = deployment.rows().await.all("SELECT seq, at FROM events").await;
    let began: HashMap<i64, i64> =
        rows.iter().map(|row| (row["seq"].as_i64().unwrap(), row["at"].as_i64().unwrap())).collect();
    let mut took: Vec<i64> = stream_text.iter().map(|(seq, at)| at - began[seq]).collect();
    took.sort_unstable();
    let at = |share: usize| took[took.len() * share / 1000] as f64 / 1000.0;
    println!("{} events: median {} ms, p99 {} ms, longest {} ms", took.len(), at(500), at(990), at(999));
}

#[expect(clippy::disallowed_methods, reason = "the time of a measurement is the machine's")]
fn micros_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}
