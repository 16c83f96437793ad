//! The real client of AI SDK 4 in a process of Node, which reads stream after stream.

use super::told::REQUEST;
use crate::domain::dialect::Dialect;
use crate::domain::id::MessageId;
use crate::domain::turn::TurnEvent;
use crate::stream::{Audience, encoder};
use bytes::BytesMut;
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use uuid::Uuid;

/// A client that reads what it is given.
pub(super) struct Page {
    child: Child,
    streams: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

/// What it read in the turns of one message.
pub(super) struct Read {
    /// What it holds then.
    pub(super) message: Option<Value>,
    /// How each turn ended, as the page is told.
    pub(super) ends: Vec<Value>,
}

impl Page {
    pub(super) fn start() -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
        assert!(dir.join("node_modules/ui-utils4").exists(), "npm ci --ignore-scripts in {}", dir.display());
        let mut child = Command::new("node")
            .current_dir(dir)
            .arg("driver/read.mjs")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is installed");
        let (streams, answers) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, streams, answers: BufReader::new(answers).lines() }
    }

    /// Reads these turns one after the other, each in pieces of these lengths, over and over.
    pub(super) fn read(&mut self, turns: &[Vec<TurnEvent<'_>>], pieces: &[usize]) -> Read {
        let turns: Vec<String> = turns.iter().map(|events| hex(&encoded(events))).collect();
        let streams = self.streams.as_mut().unwrap();
        writeln!(streams, "{}", json!({ "turns": turns, "pieces": pieces })).unwrap();
        let answer = self.answers.next().unwrap().unwrap();
        let mut read: Value = serde_json::from_str(&answer).unwrap();
        let message = Some(read["message"].take()).filter(|message| !message.is_null());
        Read { message, ends: read["ends"].as_array().unwrap().clone() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.streams.take());
        let _waited = self.child.wait();
    }
}

fn encoded(events: &[TurnEvent<'_>]) -> BytesMut {
    let mut out = BytesMut::new();
    let message_id = MessageId::new(Uuid::nil());
    let audience = Audience { message_id, request_id: REQUEST.to_owned(), approved: HashSet::new() };
    let mut encoder = encoder(Dialect::DataV1, audience);
    encoder.begin(&mut out);
    for event in events {
        encoder.event(event, &mut out);
    }
    encoder.end(&mut out);
    out
}

fn hex(bytes: &[u8]) -> String {
    let digit = |digit: u8| char::from_digit(u32::from(digit), 16).unwrap();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// A message without what may differ after a reload: times, all but the last annotation of a call, and calls whose
/// arguments never came to an end.
pub(super) fn comparable(message: &Value) -> Value {
    let mut message = message.as_object().unwrap().clone();
    message.remove("createdAt");
    message.remove("revisionId");
    let parts = message["parts"].as_array_mut().unwrap();
    parts.retain(|part| part["toolInvocation"]["state"] != "partial-call");
    if let Some(invocations) = message.get_mut("toolInvocations").and_then(Value::as_array_mut) {
        invocations.retain(|invocation| invocation["state"] != "partial-call");
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
