//! A model's server that seals what it thought into its answers and wants it back: a later request without it,
//! byte for byte and in its place, is refused, and so is one that brings what another model sealed.

mod scripts;

use super::upstream::{Asked, Upstream, refuse};
use super::{Conversation, Entry};
use futures::FutureExt;
use poem::{IntoResponse, Response};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Stands in whatever a model seals.
pub(crate) const SEALED: &str = "sealed";
/// What a model thinks where thoughts can be read. They are as good as a seal.
pub(crate) const THOUGHTS: &str = "sealed: \"it's\" 🔒 old\\gone\n";
/// What a model says when it calls `list_files` and `delete_file` of `old.txt`.
pub(crate) const ANNOUNCED: &str = "I remove it.";
/// What it says when it knows the outcome, and ever after.
pub(crate) const DONE: &str = "Done.";

/// A wire, and a way to seal on it.
pub(crate) struct StrictWire {
    pub(crate) provider: &'static str,
    /// The path of the base URL.
    base: &'static str,
    /// Whether thoughts can be read.
    pub(crate) thinks: bool,
    answers: fn() -> [Script; 2],
}

/// An answer, and how it has to come back.
struct Script {
    /// The events of the stream.
    events: Vec<Value>,
    /// The messages, items or contents; null stands for what has to be absent.
    back: Vec<Value>,
}

pub(crate) use scripts::STRICT;

/// A running one.
pub(crate) struct Strict {
    upstream: Upstream,
    wire: &'static StrictWire,
}

impl Strict {
    pub(crate) async fn start(wire: &'static StrictWire) -> Self {
        // By model: what it said so far, as it has to come back.
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

    /// What `model.base_url` has to be.
    pub(crate) fn base_url(&self) -> String {
        format!("{}{}", self.upstream.base, self.wire.base)
    }

    /// Where this request would go.
    pub(crate) fn url(&self, asked: &Asked) -> String {
        format!("{}{}", self.upstream.base, asked.path)
    }

    /// Every request there was, each of them valid; just these, by their place, were refused.
    pub(crate) fn finish(self, refused: &[(usize, u16)]) -> Vec<Asked> {
        self.upstream.finish(refused)
    }
}

/// The model that is asked: in the body, or in the path.
fn model(asked: &Asked) -> String {
    let in_path = || Some(asked.path.split_once("/models/")?.1.split_once(':')?.0);
    asked.body["model"].as_str().or_else(in_path).unwrap().to_owned()
}

/// Whether all that this model said is there in its order, with its seals, and nothing else has one.
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

/// Whether all that was given is there. What servers of this kind do not read may stand beside it.
fn is_back(found: &Value, given: &Value) -> bool {
    match (found, given) {
        (Value::Object(_), Value::Object(given)) => {
            given.iter().all(|(name, given)| is_back(&found[name], given))
        }
        (Value::Array(found), Value::Array(given)) => {
            // Thoughts that are not sealed may be told or not.
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
