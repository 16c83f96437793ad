//! Five ways in which existing systems request an approval, each played to its end.

mod annotation;
mod handler_first;
mod levels;
mod sessions;
mod several_at_once;

use holdpoint_testkit::{Client, Embedded, JsonFields, Turn, call};
use serde_json::Value;

/// Has the model request these calls in one step of a new thread. Returns the thread and the turn.
async fn asks_for(app: &Embedded, calls: &[(&str, Value)]) -> (String, Turn) {
    let thread = app.client.thread().await;
    let calls = calls.iter().enumerate();
    let calls = calls.map(|(n, (tool, inputs))| call(&format!("p-{n}"), tool, inputs));
    app.scene.calls(&calls.collect::<Vec<_>>());
    let turn = app.client.send_message(&thread, "go").await;
    (thread, turn)
}

/// The tool parts of the last message, as a reloaded page of AI SDK 6 receives it.
async fn cards(client: &Client, thread: &str) -> Vec<Value> {
    let page = client.get(&format!("/threads/{thread}/messages?format=ui-v6")).await.body;
    let last = page.list("results").last().unwrap().clone();
    let parts = last.list("parts").clone();
    parts.into_iter().filter(|part| part.get("toolCallId").is_some()).collect()
}
