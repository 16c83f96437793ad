//! What happens, told in the order it happened: a page of it, and as it happens.

mod crowd;
mod processes;
mod sight;
mod telling;
mod tickets;
mod websocket;

use serde_json::Value;

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn seqs(events: &[Value]) -> Vec<i64> {
    events.iter().map(|event| event["seq"].as_i64().unwrap()).collect()
}
