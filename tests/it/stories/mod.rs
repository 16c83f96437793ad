//! Five ways in which systems in the field ask a person, each played to its end, in its own words.

mod annotation;
mod handler_first;
mod levels;
mod sessions;
mod several_at_once;

use crate::support::{Client, Embedded, Turn, call};
use serde_json::Value;

/// A step of the model with these calls, and a thread that hears of it.
async fn asks_for(app: &Embedded, calls: &[(&str, Value)]) -> (String, Turn) {
    let thread = app.client.thread().await;
    let calls = calls.iter().enumerate();
    let calls = calls.map(|(n, (tool, inputs))| call(&format!("p-{n}"), tool, inputs));
    app.scene.calls(&calls.collect::<Vec<_>>());
    let turn = app.client.say(&thread, "go").await;
    (thread, turn)
}

/// The parts of the last message, as a page of AI SDK 6 loads it anew, that are calls.
async fn cards(client: &Client, thread: &str) -> Vec<Value> {
    let page = client.get(&format!("/threads/{thread}/messages?format=ui-v6")).await.body;
    let last = page["results"].as_array().unwrap().last().unwrap().clone();
    let parts = last["parts"].as_array().unwrap().clone();
    parts.into_iter().filter(|part| part.get("toolCallId").is_some()).collect()
}
