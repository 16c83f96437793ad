//! The wires as the tests speak them: answers that are complete and well-formed, so that a test breaks only
//! what it is about, and readers that check requests. A new wire is a file here, and its name in the list of
//! `each_wire`. All that a test has to know of a wire is in the [`Facts`] of the file, so no test names a wire that it is not
//! about.

pub mod anthropic;
pub mod chat;
pub mod gemini;
mod offered;
pub mod ollama;
pub mod responses;
pub mod strict;

use super::valid_history::faults::RequestFault;
use super::{Conversation, Entry, conversation};
use offered::{ToolRules, tools_in};
use serde_json::Value;
use std::fmt::Debug;
use strict::StrictServer;

/// Calls a macro with these tokens, followed by the names of the wires.
#[macro_export]
macro_rules! each_wire {
    ([$($macro:tt)+] $($tokens:tt)*) => {
        $($macro)+! { $($tokens)* chat, responses, anthropic, gemini, ollama }
    };
}
pub use crate::each_wire;

macro_rules! list_wires {
    ($($wire:ident),+) => {
        /// All wires.
        pub static WIRES: &[Wire] = &[$($wire::WIRE),+];
    };
}
each_wire!([list_wires]);

/// Defines a test for each wire. `side by side` defines one test that runs the wires concurrently, for tests
/// that mostly wait, and `if` limits that test to the wires with a property.
#[macro_export]
macro_rules! on_each_wire {
    ($test:ident) => {
        $crate::wires::each_wire!([$crate::wires::on_each_wire] @ $test:);
    };
    (@ $test:ident: $($wire:ident),+) => {
        mod $test {
            $(#[tokio::test]
            async fn $wire() {
                super::$test($crate::wires::$wire::WIRE).await;
            })+
        }
    };
    (side by side $test:ident) => {
        $crate::wires::on_each_wire!(@ side by side $test, |_| true);
    };
    (side by side $test:ident if $property:ident) => {
        $crate::wires::on_each_wire!(@ side by side $test, |wire| wire.facts().$property);
    };
    (@ side by side $test:ident, $is_meant:expr) => {
        mod $test {
            #[tokio::test]
            async fn side_by_side() {
                use futures::FutureExt;
                use $crate::wires::{WIRES, Wire};
                let is_meant: fn(Wire) -> bool = $is_meant;
                let wires = WIRES.iter().copied().filter(|wire| is_meant(*wire));
                let tests: Vec<_> = wires.map(|wire| super::$test(wire).boxed_local()).collect();
                assert!(!tests.is_empty());
                futures::future::join_all(tests).await;
            }
        }
    };
}
pub use crate::on_each_wire;

/// A protocol of a model server.
pub type Wire = &'static dyn Protocol;

/// The reason for the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Stop,
    Calls,
    Length,
    /// The provider filtered the answer.
    Filtered,
}

impl Ending {
    /// The word of a wire for this reason.
    fn word(
        self,
        stop: &'static str,
        calls: &'static str,
        length: &'static str,
        filtered: &'static str,
    ) -> &'static str {
        match self {
            Self::Stop => stop,
            Self::Calls => calls,
            Self::Length => length,
            Self::Filtered => filtered,
        }
    }
}

/// The facts about a wire.
pub struct Facts {
    /// The value of `model.provider`.
    pub provider: &'static str,
    /// The path of the base URL.
    pub base_path: &'static str,
    /// The path of a request below the base URL. `{model}` is the name of the model.
    path: &'static str,
    /// Whether the stream consists of server-sent events. The others are lines of JSON.
    pub is_sse: bool,
    /// Whether an event repeats its type as its name.
    names_events: bool,
    /// Whether arguments are streamed as text deltas; on the other wires they are a part of the event.
    pub writes_arguments: bool,
    /// Whether an error in the stream can be an overload.
    pub reports_overload: bool,
    /// Whether text can have web sources.
    pub has_sources: bool,
    /// Whether each text is a message of its own, with a blank line before it.
    pub separates_texts: bool,
    /// Whether an event marks the end of the stream.
    pub marks_the_end: bool,
    /// Whether events follow the reason of the end.
    pub continues_after_the_reason: bool,
    /// Whether text is unreadable without the events before it.
    pub needs_its_first_events: bool,
    /// Whether the answer to a call names the tool.
    pub answers_name_tools: bool,
    /// Whether calls and answers need ids.
    pub calls_need_ids: bool,
    /// The field of a call with its id.
    pub id_field: &'static str,
    /// The data of the last event, if it is no JSON.
    pub last_data: Option<&'static str>,
    /// Bytes without content that show that the server works.
    pub sign_of_life: &'static str,
    /// Events with sources in an unexpected form.
    pub odd_sources: &'static [&'static str],
    /// What its servers accept of tools.
    tools: ToolRules,
    /// An event with a reason of the end, which servers may send before the answer is said.
    pub early_reason: Option<&'static str>,
    /// How its servers refuse a conversation that is too long.
    pub too_long: Refusal,
    /// Whether a request forbids the model to call its tools. A wire that has no word for it sends no tools then, and its
    /// servers take calls without tools.
    pub forbids_calls: Option<fn(&Value) -> bool>,
    /// Servers that demand their provider state back.
    pub strict_servers: &'static [StrictServer],
    /// The form of the provider state. A server accepts the state of another server of the same form.
    pub state_form: &'static str,
    /// The wire at the foreign server.
    pub foreign: Foreign,
}

/// A response that refuses a request.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    pub status: u16,
    pub body: &'static str,
}

/// The form of the requests and answers of a wire.
pub trait Protocol: Debug + Sync {
    fn facts(&self) -> &'static Facts;

    /// An error event: overloaded, or a permanent failure.
    fn error(&self, overloaded: bool, words: &str) -> Value;

    /// The first event of an answer.
    fn begin(&self) -> Option<Value>;

    /// Appends text as item `at` of the answer, in these deltas.
    fn words(&self, answer: ScriptedAnswer, at: usize, pieces: &[&str]) -> ScriptedAnswer;

    /// Appends reasoning, in these deltas.
    fn thinks(&self, answer: ScriptedAnswer, at: usize, pieces: &[&str]) -> ScriptedAnswer;

    /// Appends a web source of the text, if the wire has sources.
    fn source(&self, answer: ScriptedAnswer, at: usize, url: &str, title: Option<&str>) -> ScriptedAnswer;

    /// Appends the begin of call `number` as item `at`, with these deltas of its arguments.
    fn begin_call(
        &self,
        answer: ScriptedAnswer,
        at: usize,
        number: usize,
        id: &str,
        tool: &str,
        arguments: &[&str],
    ) -> ScriptedAnswer;

    /// Ends the call that is item `at`.
    fn end_call(
        &self,
        answer: ScriptedAnswer,
        at: usize,
        id: &str,
        tool: &str,
        arguments: &str,
    ) -> ScriptedAnswer;

    /// Ends the answer for this reason.
    fn ends(&self, answer: ScriptedAnswer, why: Ending) -> ScriptedAnswer;

    /// Answers without a valid reading, each with a label.
    fn nonsense(&self) -> Vec<(&'static str, ScriptedAnswer)>;

    /// The conversation in the body of a request, which has to follow the rules of the provider.
    fn read(&self, body: &Value) -> Result<Conversation, String>;

    /// A valid request with the conversation of the test of the readers.
    fn valid_body(&self) -> Value;

    /// The faults of a request that the reader finds: a place in `valid_body`, the fault, a part of the error.
    fn faults(&self) -> Vec<(&'static str, RequestFault, &'static str)>;
}

/// A wire at the foreign server.
pub struct Foreign {
    /// A model name that the foreign server takes for a reasoning model.
    pub model: &'static str,
    /// The options added to each request, so that the model reasons; the foreign server is stricter then.
    pub options: &'static str,
    /// The header with the key, and its value.
    pub key: (&'static str, &'static str),
    /// Whether the foreign server streams the model's reasoning.
    pub thinks: bool,
    /// Whether the foreign server reports token usage.
    pub counts: bool,
}

impl dyn Protocol {
    /// The path of a request to this model.
    pub fn path(&self, model: &str) -> String {
        let Facts { base_path, path, .. } = self.facts();
        format!("{base_path}{}", path.replace("{model}", model))
    }

    /// Whether its servers accept a tool of this name.
    pub fn accepts_tool(&self, name: &str) -> bool {
        (self.facts().tools.tool)(name)
    }

    /// Whether its servers accept an input of this name.
    pub fn accepts_property(&self, name: &str) -> bool {
        (self.facts().tools.property)(name)
    }

    /// The names and the schemas of the tools in a request.
    pub fn tools(&self, body: &Value) -> Vec<(String, Value)> {
        let Facts { tools: rules, .. } = self.facts();
        let at = |tool: &Value, pointer| tool.pointer(pointer).unwrap_or_else(|| panic!("{tool}")).clone();
        let named = |tool| (at(tool, rules.name).as_str().unwrap().to_owned(), at(tool, rules.schema));
        tools_in(rules, body).unwrap().iter().map(named).collect()
    }

    /// The end of the path of each request.
    pub fn path_end(&self) -> &'static str {
        let path = self.facts().path.split('?').next().unwrap_or_default();
        path.rsplit('}').next().unwrap_or_default()
    }

    pub fn content_type(&self) -> &'static str {
        if self.facts().is_sse { "text/event-stream" } else { "application/x-ndjson" }
    }

    /// One event with this data, as bytes on the wire.
    pub fn frame(&self, data: &str) -> String {
        let name = data.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split('"').next());
        match name.filter(|_| self.facts().names_events) {
            _ if !self.facts().is_sse => format!("{data}\n"),
            Some(name) => format!("event: {name}\ndata: {data}\n\n"),
            None => format!("data: {data}\n\n"),
        }
    }

    fn entries_in(&self, request: &Value) -> Vec<Entry> {
        conversation(self.path_end(), request).unwrap().entries
    }

    /// The answers to calls in a request, oldest first.
    pub fn tool_results(&self, request: &Value) -> Vec<String> {
        let answers = self.entries_in(request).into_iter().filter_map(|entry| match entry {
            Entry::Answers(answers) => Some(answers),
            Entry::Words { .. } | Entry::Calls { .. } => None,
        });
        answers.flatten().map(|answer| answer.text).collect()
    }

    /// The calls in a request, oldest first: tool and arguments.
    pub fn calls(&self, request: &Value) -> Vec<(String, Value)> {
        let calls = self.entries_in(request).into_iter().filter_map(|entry| match entry {
            Entry::Calls { calls, .. } => Some(calls),
            Entry::Words { .. } | Entry::Answers(_) => None,
        });
        calls.flatten().map(|call| (call.tool, call.arguments)).collect()
    }
}

/// An answer as the data of its events. Tests break the answer here.
#[derive(Debug, Clone)]
pub struct ScriptedAnswer {
    pub wire: Wire,
    pub events: Vec<String>,
    /// The number of items in the answer so far, including calls.
    places: usize,
    calls: usize,
    /// The items that the last event of a Responses answer repeats.
    items: Vec<String>,
}

impl ScriptedAnswer {
    /// Begins an answer.
    pub fn on(wire: Wire) -> Self {
        let events = wire.begin().iter().map(Value::to_string).collect();
        Self { wire, events, places: 0, calls: 0, items: Vec::new() }
    }

    /// A complete answer with this text.
    pub fn words_on(wire: Wire, words: &str) -> Self {
        Self::on(wire).words(&[words]).end()
    }

    /// A complete answer with one call.
    pub fn call_on(wire: Wire, id: &str, tool: &str, arguments: &[&str]) -> Self {
        Self::on(wire).call(id, tool, arguments).end()
    }

    /// Appends an event with this data.
    pub fn event(mut self, data: impl Into<String>) -> Self {
        self.events.push(data.into());
        self
    }

    fn json(self, data: &Value) -> Self {
        self.event(data.to_string())
    }

    /// Appends text, in these deltas.
    pub fn words(mut self, pieces: &[&str]) -> Self {
        let (wire, at) = (self.wire, self.places);
        self.places += 1;
        wire.words(self, at, pieces)
    }

    /// Appends reasoning, in these deltas.
    pub fn thinks(self, pieces: &[&str]) -> Self {
        let (wire, at) = (self.wire, self.places);
        wire.thinks(self, at, pieces)
    }

    /// Appends a web source of the text, if the wire has sources.
    pub fn source(self, url: &str, title: Option<&str>) -> Self {
        let (wire, at) = (self.wire, self.places);
        wire.source(self, at, url, title)
    }

    /// Appends a complete call, with its arguments in these deltas if the wire has deltas. The arguments are
    /// written unchanged, valid JSON or not.
    pub fn call(self, id: &str, tool: &str, arguments: &[&str]) -> Self {
        let (wire, at) = (self.wire, self.places);
        wire.end_call(self.begin_call(id, tool, arguments), at, id, tool, &arguments.concat())
    }

    /// Appends the part of a call that is sent before the answer breaks off after these deltas.
    pub fn begin_call(mut self, id: &str, tool: &str, arguments: &[&str]) -> Self {
        let (wire, at, number) = (self.wire, self.places, self.calls);
        self.places += 1;
        self.calls += 1;
        wire.begin_call(self, at, number, id, tool, arguments)
    }

    /// Ends the answer normally.
    pub fn end(self) -> Self {
        let why = if self.calls > 0 { Ending::Calls } else { Ending::Stop };
        self.ends(why)
    }

    /// Ends the answer for this reason.
    pub fn ends(self, why: Ending) -> Self {
        let wire = self.wire;
        wire.ends(self, why)
    }

    /// The answer's bytes, event by event.
    pub fn pieces(&self) -> Vec<Vec<u8>> {
        self.events.iter().map(|data| self.wire.frame(data).into_bytes()).collect()
    }

    /// The answer's bytes before the first event that contains this text, and the bytes from that event on.
    pub fn split(&self, at: &str) -> (Vec<u8>, Vec<u8>) {
        let at = self.events.iter().position(|data| data.contains(at)).unwrap();
        let mut before = self.pieces();
        let behind = before.split_off(at);
        (before.concat(), behind.concat())
    }

    pub fn text(&self) -> String {
        self.events.iter().map(|data| self.wire.frame(data)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint::config::Provider;

    #[test]
    fn each_provider_with_a_server_is_tested() {
        let servers = Provider::all().filter(|provider| *provider != Provider::SCRIPTED);
        let tested: Vec<_> = WIRES.iter().map(|wire| wire.facts().provider).collect();
        assert_eq!(tested, servers.map(Provider::as_str).collect::<Vec<_>>());
    }
}
