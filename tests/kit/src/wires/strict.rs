//! A model server that seals its reasoning into its answers and requires it back. It refuses a later request
//! without the sealed content, byte for byte and in its place, and a request with content that another model
//! sealed.

use super::Wire;
use crate::upstream::{RecordedRequest, Upstream, refuse};
use crate::{Conversation, Entry};
use futures::FutureExt;
use poem::{IntoResponse, Response};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The marker in everything that a model seals.
pub const SEALED: &str = "sealed";
/// The reasoning of a model whose reasoning is readable. It has to come back like a seal.
pub const THOUGHTS: &str = "sealed: \"it's\" 🔒 old\\gone\n";
/// The model's text when it calls `list_files` and `delete_file` of `old.txt`.
pub const ANNOUNCED: &str = "I remove it.";
/// The model's text after it knows the outcome, and from then on.
pub const DONE: &str = "Done.";

/// A kind of server, by its way to seal.
pub struct StrictServer {
    pub wire: Wire,
    /// The path of the base URL.
    pub base: &'static str,
    /// Whether the reasoning is readable.
    pub thinks: bool,
    pub answers: fn() -> [Script; 2],
}

/// An answer, and the form in which it has to come back.
pub struct Script {
    /// The events of the stream.
    pub events: Vec<Value>,
    /// The messages, items or contents; null marks a field that has to be absent.
    pub back: Vec<Value>,
}

/// An opaque, long seal, like real signatures.
pub fn seal(which: &str) -> String {
    format!("sealed/{which}+{}==", "Zm9yZ2V0IG1lIG5vdA".repeat(300))
}

/// Splits a text inside a word or an escape, because a text may be cut anywhere.
pub fn halves(text: &str) -> [&str; 2] {
    text.split_at(text.char_indices().nth(text.chars().count() / 2).unwrap().0).into()
}

/// A running server.
pub struct Strict {
    upstream: Upstream,
    server: &'static StrictServer,
}

impl Strict {
    pub async fn start(server: &'static StrictServer) -> Self {
        // By model: its output so far, in the form in which it has to come back.
        let expected: Arc<Mutex<HashMap<String, Vec<Value>>>> = Arc::default();
        let answer = move |request: RecordedRequest| {
            let mut expected = expected.lock().unwrap();
            let expected = expected.entry(model(&request)).or_default();
            let answer = match sealed_as_expected(&request.body, expected) {
                Ok(()) => {
                    let Conversation { entries, .. } = request.conversation();
                    let has_answers = entries.iter().any(|entry| matches!(entry, Entry::Answers(_)));
                    let [first, second] = (server.answers)();
                    let script = if has_answers { second } else { first };
                    expected.extend(script.back);
                    streamed(server.wire, &script.events)
                }
                Err(wrong) => refuse(wrong),
            };
            std::future::ready(answer).boxed()
        };
        Self { upstream: Upstream::start(answer).await, server }
    }

    /// The `model.base_url` of this server.
    pub fn base_url(&self) -> String {
        format!("{}{}", self.upstream.base, self.server.base)
    }

    /// The URL of this request at this server.
    pub fn url(&self, request: &RecordedRequest) -> String {
        format!("{}{}", self.upstream.base, request.path)
    }

    /// Every request. Each was valid, and only those at these indices were refused.
    pub fn finish(self, refused: &[(usize, u16)]) -> Vec<RecordedRequest> {
        self.upstream.finish(refused)
    }
}

/// The requested model, from the body or the path.
fn model(request: &RecordedRequest) -> String {
    let in_path = || Some(request.path.split_once("/models/")?.1.split_once(':')?.0);
    request.body["model"].as_str().or_else(in_path).unwrap().to_owned()
}

/// Checks that the whole output of this model is present in order, with its seals, and that nothing else is
/// sealed.
fn sealed_as_expected(body: &Value, expected: &[Value]) -> Result<(), String> {
    let entries = ["messages", "input", "contents"].iter().find_map(|list| body[list].as_array()).unwrap();
    let by_models = entries.iter().filter(|entries| match entries["role"].as_str() {
        Some(role) => matches!(role, "assistant" | "model"),
        None => entries["type"] != "function_call_output",
    });
    let mut expected = expected.iter().peekable();
    for entries in by_models {
        let mine = expected.next_if(|expected| is_back(entries, expected)).is_some();
        if !mine && entries.to_string().contains(SEALED) {
            return Err(format!("I did not seal this here: {entries}"));
        }
    }
    expected.next().map_or(Ok(()), |missing| Err(format!("I said this, and in its place: {missing}")))
}

/// Whether everything given has come back. Fields that servers of this kind do not read may be added.
fn is_back(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Object(_), Value::Object(expected)) => {
            expected.iter().all(|(name, expected)| is_back(&found[name], expected))
        }
        (Value::Array(found), Value::Array(expected)) => {
            // Reasoning without a seal may come back or not.
            let found: Vec<_> = found.iter().filter(|it| it["thought"] != true).collect();
            found.len() == expected.len()
                && expected.iter().zip(found).all(|(expected, found)| is_back(found, expected))
        }
        _ => found == expected,
    }
}

fn streamed(wire: Wire, events: &[Value]) -> Response {
    let mut text: String = events.iter().map(|event| wire.frame(&event.to_string())).collect();
    text.extend(wire.facts().last_data.map(|data| wire.frame(data)));
    text.with_content_type(wire.content_type()).into_response()
}
