//! Many write at once, and one reads, is cut off and goes on.

use super::seqs;
use crate::support::{Embedded, Sse};
use futures::future::join_all;
use serde_json::Value;
use std::collections::HashMap;

const WRITERS: usize = 8;
const CALLS: usize = 4;
/// Events of a run that holds one call which is then rejected.
const EVENTS: usize = 5;

async fn writes(app: &Embedded, writer: usize) {
    for n in 0..CALLS {
        // The model says what comes next to whoever asks first, so all of them ask for the same.
        let note = format!("{writer}-{n}");
        let arguments = serde_json::json!({ "note": note });
        app.scene.calls(&[crate::support::call(&note, "pay", &arguments)]);
        let turn = app.client.say(&app.client.thread().await, "please").await;
        let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
        assert_eq!(app.client.reject(id).await.status, 200);
    }
}

/// Reads a few at a time, and is cut off behind each few.
async fn reads(app: &Embedded, few: usize, all: usize) -> Vec<Value> {
    let (mut heard, mut last) = (Vec::new(), "0".to_owned());
    while heard.len() < all {
        let mut stream = Sse::behind(&app.client, "/events", Some(&last)).await;
        heard.extend(stream.take(few.min(all - heard.len())).await);
        last = stream.last_event_id.unwrap();
    }
    heard
}

#[tokio::test]
async fn nothing_is_skipped_and_nothing_told_twice_while_many_write_and_a_reader_is_cut_off_again_and_again()
{
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

/// Each call is told of in the order of its life.
fn in_order(events: &[Value]) {
    let mut lives: HashMap<&str, Vec<&str>> = HashMap::new();
    for event in events {
        if let Some(call) = event["tool_call_id"].as_str() {
            lives.entry(call).or_default().push(event["type"].as_str().unwrap());
        }
    }
    assert_eq!(lives.len(), WRITERS * CALLS);
    for life in lives.values() {
        assert_eq!(life[..], ["tool.called", "tool.requires_approval", "tool.rejected"]);
    }
}
