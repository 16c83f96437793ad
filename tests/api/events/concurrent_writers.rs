//! Many concurrent writers, and a reader that disconnects and resumes.

use super::seqs;
use futures::future::join_all;
use holdpoint_testkit::{Embedded, JsonFields, Sse};
use serde_json::Value;
use std::collections::HashMap;

const WRITERS: usize = 8;
const CALLS: usize = 4;
/// Events of a run that holds one call, which is then rejected.
const EVENTS: usize = 5;

async fn writes(app: &Embedded, writer: usize) {
    for n in 0..CALLS {
        // The scripted model gives its next step to the first request, so all writers request the same step.
        let note = format!("{writer}-{n}");
        let arguments = serde_json::json!({ "note": note });
        app.scene.calls(&[holdpoint_testkit::call(&note, "pay", &arguments)]);
        let turn = app.client.send_message(&app.client.thread().await, "please").await;
        let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
        app.client.reject(id).await.has_status(200);
    }
}

/// Reads a few events at a time, and disconnects after each batch.
async fn reads(app: &Embedded, few: usize, all: usize) -> Vec<Value> {
    let (mut received, mut last) = (Vec::new(), "0".to_owned());
    while received.len() < all {
        let mut stream = Sse::behind(&app.client, "/events", Some(&last)).await;
        received.extend(stream.take(few.min(all - received.len())).await);
        last = stream.last_event_id.unwrap();
    }
    received
}

#[tokio::test]
async fn a_reader_that_reconnects_often_gets_every_event_once_despite_many_writers() {
    let app = Embedded::start().await;
    let all = WRITERS * CALLS * EVENTS;
    let writers = join_all((0..WRITERS).map(|writer| writes(&app, writer)));
    let mut steady = Sse::behind(&app.client, "/events", Some("0")).await;
    let (_, often, seldom, steady) =
        tokio::join!(writers, reads(&app, 1, all), reads(&app, 7, all), steady.take(all));
    let gapless: Vec<i64> = (1..=i64::try_from(all).unwrap()).collect();
    assert_eq!(seqs(&steady), gapless);
    assert_eq!(often, seldom);
    assert_eq!(seqs(&often), gapless);
    assert_eq!(app.rows.count("events").await, i64::try_from(all).unwrap());
    in_order(&steady);
}

/// The events of each call arrive in the order of its states.
fn in_order(events: &[Value]) {
    let mut lives: HashMap<&str, Vec<&str>> = HashMap::new();
    for event in events {
        if let Some(call) = event["tool_call_id"].as_str() {
            lives.entry(call).or_default().push(event.text("type"));
        }
    }
    assert_eq!(lives.len(), WRITERS * CALLS);
    for life in lives.values() {
        assert_eq!(life[..], ["tool.called", "tool.requires_approval", "tool.rejected"]);
    }
}
