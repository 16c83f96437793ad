//! A model server that seals its reasoning into its answers and requires it back. It refuses a later request
//! without the sealed content, byte for byte and in its place, and a request with content that another model
//! sealed.

mod scripts;

use super::upstream::{Asked, Upstream, refuse};
use super::{Conversation, Entry};
use futures::FutureExt;
use poem::{IntoResponse, Response};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The marker in everything that a model seals.
pub(crate) const SEALED: &str = "sealed";
/// The reasoning of a model whose reasoning is readable. It has to come back like a seal.
pub(crate) const THOUGHTS: &str = "sealed: \"it's\" 🔒 old\\gone\n";
/// The model's text when it calls `list_files` and `delete_file` of `old.txt`.
pub(crate) const ANNOUNCED: &str = "I remove it.";
/// The model's text after it knows the outcome, and from then on.
pub(crate) const DONE: &str = "Done.";

/// A wire, and a way to seal on it.
pub(crate) struct StrictWire {
    pub(crate) provider: &'static str,
    /// The path of the base URL.
    base: &'static str,
    /// Whether the reasoning is readable.
    pub(crate) thinks: bool,
    answers: fn() -> [Script; 2],
}

/// An answer, and the form in which it has to come back.
struct Script {
    /// The events of the stream.
    events: Vec<Value>,
    /// The messages, items or contents; null marks a field that has to be absent.
    back: Vec<Value>,
}

pub(crate) use scripts::STRICT;

/// A running server.
pub(crate) struct Strict {
    upstream: Upstream,
    wire: &'static StrictWire,
}

impl Strict {
    pub(crate) async fn start(wire: &'static StrictWire) -> Self {
        // By model: its output so far, in the form in which it has to come back.
        let given: Arc<Mutex<HashMap<String, Vec<Value>>>> = Arc::default();
        let answer = move |asked: Asked| {
            let mut given = given.lock().unwrap();
            let given = given.entry(model(&asked)).or_default();
            let answer = match sealed_as_given(&asked.body, given) {
                Ok(()) => {
                    let Conversation { said, .. } = asked.conversation();
                    let told = said.iter().any(|entry| matches!(entry, Entry::Answers(_)));
                    let [first, second] = (wire.answers)();
                    let script = if told { second } else { first };
                    given.extend(script.back);
                    streamed(wire.provider, &script.events)
                }
                Err(wrong) => refuse(wrong),
            };
            std::future::ready(answer).boxed()
        };
        Self { upstream: Upstream::start(answer).await, wire }
    }

    /// The `model.base_url` of this server.
    pub(crate) fn base_url(&self) -> String {
        format!("{}{}", self.upstream.base, self.wire.base)
    }

    /// The URL of this request at this server.
    pub(crate) fn url(&self, asked: &Asked) -> String {
        format!("{}{}", self.upstream.base, asked.path)
    }

    /// Every request. Each was valid, and only those at these indices were refused.
    pub(crate) fn finish(self, refused: &[(usize, u16)]) -> Vec<Asked> {
        self.upstream.finish(refused)
    }
}

/// The requested model, from the body or the path.
fn model(asked: &Asked) -> String {
    let in_path = || Some(asked.path.split_once("/models/")?.1.split_once(':')?.0);
    asked.body["model"].as_str().or_else(in_path).unwrap().to_owned()
}

/// Checks that the whole output of this model is present in order, with its seals, and that nothing else is
/// sealed.
fn sealed_as_given(body: &Value, given: &[Value]) -> Result<(), String> {
    let said = ["messages", "input", "contents"].iter().find_map(|list| body[list].as_array()).unwrap();
    let by_models = said.iter().filter(|said| match said["role"].as_str() {
        Some(role) => matches!(role, "assistant" | "model"),
        None => said["type"] != "function_call_output",
    });
    let mut given = given.iter().peekable();
    for said in by_models {
        let mine = given.next_if(|given| is_back(said, given)).is_some();
        if !mine && said.to_string().contains(SEALED) {
            return Err(format!("I did not seal this here: {said}"));
        }
    }
    given.next().map_or(Ok(()), |missing| Err(format!("I said this, and in its place: {missing}")))
}

/// Whether everything given has come back. Fields that servers of this kind do not read may be added.
fn is_back(found: &Value, given: &Value) -> bool {
    match (found, given) {
        (Value::Object(_), Value::Object(given)) => {
            given.iter().all(|(name, given)| is_back(&found[name], given))
        }
        (Value::Array(found), Value::Array(given)) => {
            // Reasoning without a seal may come back or not.
            let found: Vec<_> = found.iter().filter(|it| it["thought"] != true).collect();
            found.len() == given.len() && given.iter().zip(found).all(|(given, found)| is_back(found, given))
        }
        _ => found == given,
    }
}

fn streamed(provider: &str, events: &[Value]) -> Response {
    let event = |event: &Value| match (provider, event["type"].as_str()) {
        ("ollama", _) => format!("{event}\n"),
        ("anthropic" | "openai-responses", Some(kind)) => format!("event: {kind}\ndata: {event}\n\n"),
        _ => format!("data: {event}\n\n"),
    };
    let mut text: String = events.iter().map(event).collect();
    if provider == "openai" {
        text.push_str("data: [DONE]\n\n");
    }
    let kind = if provider == "ollama" { "application/x-ndjson" } else { "text/event-stream" };
    text.with_content_type(kind).into_response()
}
