//! The real clients of the AI SDK in a Node process, which read one stream after the other.

use super::expected::REQUEST;
use super::scenario::Scenario;
use super::simulation::{Simulated, Turn};
use crate::{Audience, Dialect, PageDecision};
use bytes::BytesMut;
use holdpoint_core::id::MessageId;
use serde_json::{Map, Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use uuid::Uuid;

/// Clients that read the streams of a test.
pub(super) struct Pages {
    child: Child,
    streams: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

/// The result of one client for the turns of one message.
pub(super) struct Read {
    /// The release of the client.
    pub(super) client: String,
    /// The message that the client holds.
    pub(super) message: Value,
    /// The end of each turn, as reported to the page.
    pub(super) ends: Vec<Value>,
}

impl Pages {
    /// Starts the clients that read this dialect: `tests/wire/dialects.json`.
    pub(super) fn of(dialect: &Dialect) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/wire");
        let listed = std::fs::read_to_string(dir.join("dialects.json")).unwrap();
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
        let listed = listed.iter().find(|listed| listed["name"] == dialect.name);
        let listed = listed.unwrap_or_else(|| panic!("tests/wire/dialects.json has no {}", dialect.name));
        let clients: Vec<String> = serde_json::from_value(listed["readers"].clone()).unwrap();
        assert!(!clients.is_empty(), "{}: no client reads this dialect", dialect.name);
        for client in &clients {
            let there = dir.join("node_modules").join(client).exists();
            assert!(there, "npm ci --ignore-scripts in {}", dir.display());
        }
        let mut child = Command::new("node")
            .current_dir(dir)
            .arg("driver/read.mjs")
            .args(&clients)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is installed");
        let (streams, answers) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, streams, answers: BufReader::new(answers).lines() }
    }

    /// Returns the result of each client for these streams, read one turn after the other. The bytes arrive
    /// in chunks of the scenario's lengths, which repeat.
    pub(super) fn read(
        &mut self,
        simulated: &Simulated,
        scenario: &Scenario,
        dialect: &Dialect,
    ) -> Vec<Read> {
        let turns: Vec<Value> = simulated.turns.iter().map(|turn| posted(turn, scenario, dialect)).collect();
        let streams = self.streams.as_mut().unwrap();
        writeln!(streams, "{}", json!({ "turns": turns, "pieces": scenario.pieces })).unwrap();
        let answer = self.answers.next().unwrap().unwrap();
        let reads: Vec<Value> = serde_json::from_str(&answer).unwrap();
        let read = |mut read: Value| Read {
            client: read["client"].as_str().unwrap().to_owned(),
            message: read["message"].take(),
            ends: read["ends"].as_array().unwrap().clone(),
        };
        reads.into_iter().map(read).collect()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // The process ends when its input ends.
        drop(self.streams.take());
        let _waited = self.child.wait();
    }
}

/// Returns a turn with the request of the page that reads it.
fn posted(turn: &Turn, scenario: &Scenario, dialect: &Dialect) -> Value {
    let answers = turn.answers.iter().map(
        |answer| json!({ "id": answer.tool_call_id, "approved": answer.approved, "reason": answer.reason }),
    );
    let bytes = hex(&encoded(turn, scenario, dialect));
    json!({ "bytes": bytes, "answers": answers.collect::<Vec<_>>(), "loadedAnew": turn.before.is_some() })
}

pub(super) fn encoded(turn: &Turn, scenario: &Scenario, dialect: &Dialect) -> BytesMut {
    let mut out = BytesMut::new();
    let message_id = MessageId::new(Uuid::nil());
    let answers = turn.answers.iter().filter(|_| dialect.is_ui);
    let answers = answers.map(|answer| {
        (answer.tool_call_id, PageDecision { approved: answer.approved, accepted: answer.accepted })
    });
    let audience = Audience {
        approved: turn.approved.clone(),
        answers: answers.collect(),
        ..Audience::new(message_id, REQUEST)
    };
    let mut encoder = dialect.encoder(audience);
    encoder.begin(&mut out);
    let before = turn.before.iter().flatten().filter(|_| dialect.client.needs_earlier_steps);
    for (n, event) in before.chain(&turn.events).enumerate() {
        encoder.event(event, &mut out);
        if scenario.alive.is_some_and(|alive| n % alive == 0) {
            encoder.keep_alive(&mut out);
        }
    }
    encoder.end(&mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    let digit = |digit: u8| char::from_digit(u32::from(digit), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns a message without the facts that may differ after a reload: times, ids of parts, all but the last
/// annotation of a call, and calls with incomplete arguments. In the UI message stream, also the starts of steps without
/// any content: clients show such a start together with the next part, if there is one.
pub(super) fn comparable(message: &Value, simulated: &Simulated, dialect: &Dialect) -> Value {
    let Some(message) = message.as_object() else { return Value::Null };
    let mut message = message.clone();
    if let Some(Value::Array(data)) = message.remove("data") {
        // A page gets a part again when it changes, and the last one counts.
        let key = |part: &Value| format!("{} {}", part["type"], part["id"]);
        let last: Map<String, Value> = data.into_iter().map(|part| (key(&part), part)).collect();
        message.insert("data".to_owned(), json!(last));
    }
    message.remove("createdAt");
    message.remove("revisionId");
    let parts = message["parts"].as_array_mut().unwrap();
    parts.retain(|part| {
        part["toolInvocation"]["state"] != "partial-call" && part["state"] != "input-streaming"
    });
    if dialect.is_ui {
        let begins = |part: &Value| part["type"] == "step-start";
        let nothing = |n: usize| begins(&parts[n]) && parts.get(n + 1).is_none_or(begins);
        *parts = (0..parts.len()).filter(|n| !nothing(*n)).map(|n| parts[n].clone()).collect();
    }
    for part in parts.iter_mut().filter(|part| part["type"] == "reasoning") {
        part.as_object_mut().unwrap().remove("id");
    }
    if simulated.continued_after_incomplete_call {
        let invocations = parts.iter_mut().filter_map(|part| part.get_mut("toolInvocation"));
        invocations.for_each(forget_number);
    }
    if let Some(invocations) = message.get_mut("toolInvocations").and_then(Value::as_array_mut) {
        invocations.retain(|invocation| invocation["state"] != "partial-call");
        if simulated.continued_after_incomplete_call {
            invocations.iter_mut().for_each(forget_number);
        }
        if invocations.is_empty() {
            message.remove("toolInvocations");
        }
    }
    if let Some(Value::Array(annotations)) = message.remove("annotations") {
        let last: Map<String, Value> = annotations
            .into_iter()
            .map(|annotation| (annotation["toolCallId"].as_str().unwrap().to_owned(), annotation))
            .collect();
        message.insert("annotations".to_owned(), json!(last));
    }
    Value::Object(message)
}

fn forget_number(invocation: &mut Value) {
    invocation.as_object_mut().unwrap().remove("step");
}
