//! A message of `/chat/completions`, and a piece of one of its calls, as servers send them.

use super::lenient::{self, Index, List, Text};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

/// The fields in which servers send reasoning.
pub(super) const THOUGHTS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];
/// Fields of a message that are no state of the server: they repeat other fields, or describe the answer.
const DESCRIBING: [&str; 15] = [
    "role",
    "executed_tools",
    "audio",
    "channel",
    "citations",
    "images",
    "logprobs",
    "token_ids",
    "prompt_token_ids",
    "usage",
    "index",
    "finish_reason",
    "stop_reason",
    "matched_stop",
    "parsed",
];

/// A message, or a delta of it.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) content: Value,
    pub(super) refusal: Text,
    /// The values of the fields of [`THOUGHTS`], if they are present.
    pub(super) thoughts: [Option<Text>; THOUGHTS.len()],
    pub(super) calls: Vec<Piece>,
    pub(super) annotations: Option<Value>,
    /// The other fields, which the server may want back.
    pub(super) rest: Map<String, Value>,
}

impl Message {
    /// Returns whether the message says something.
    pub(super) fn has_content(&self) -> bool {
        let says = |text: &Text| !text.as_str().is_empty();
        !lenient::text(&self.content).is_empty()
            || says(&self.refusal)
            || self.thoughts.iter().flatten().any(says)
            || !self.calls.is_empty()
    }
}

/// A call, or a piece of it.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) index: Index,
    pub(super) id: Text,
    pub(super) name: Text,
    pub(super) arguments: Option<String>,
    /// The other fields, which the server may want back.
    pub(super) rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    name: Text,
    arguments: Option<Box<RawValue>>,
}

impl Piece {
    fn function(&mut self, function: Option<Function>) {
        if let Some(Function { name, arguments }) = function {
            self.name = Text(name.0.or_else(|| self.name.0.take()));
            self.arguments = lenient::arguments(arguments).or_else(|| self.arguments.take());
        }
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MessageVisitor)
    }
}

struct MessageVisitor;

impl<'de> Visitor<'de> for MessageVisitor {
    type Value = Message;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_str<E>(self, text: &str) -> Result<Message, E> {
        Ok(Message { content: text.into(), ..Message::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Message, A::Error> {
        let mut message = Message::default();
        let mut legacy = None;
        while let Some(field) = fields.next_key::<String>()? {
            let thoughts = THOUGHTS.into_iter().zip(&mut message.thoughts).find(|(name, _)| *name == field);
            if let Some((_, thoughts)) = thoughts {
                *thoughts = Some(fields.next_value()?);
                continue;
            }
            match field.as_str() {
                "content" => message.content = fields.next_value()?,
                "refusal" => message.refusal = fields.next_value()?,
                "annotations" => message.annotations = fields.next_value()?,
                "tool_calls" => message.calls = fields.next_value::<List<Piece>>()?.0,
                // The form of calls before there were several.
                "function_call" => legacy = fields.next_value::<Option<Function>>()?,
                field if DESCRIBING.contains(&field) => {
                    fields.next_value::<IgnoredAny>()?;
                }
                _ => {
                    keep(&mut message.rest, field, fields.next_value()?);
                }
            }
        }
        if message.calls.is_empty() && legacy.is_some() {
            let mut piece = Piece::default();
            piece.function(legacy);
            message.calls.push(piece);
        }
        Ok(message)
    }
}

/// Adds a field that the server may want back. Numbers and switches describe the answer: a state is text, or an
/// object or a list with it.
fn keep(rest: &mut Map<String, Value>, field: String, value: Value) {
    if matches!(value, Value::String(_) | Value::Array(_) | Value::Object(_)) {
        rest.insert(field, value);
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PieceVisitor)
    }
}

struct PieceVisitor;

impl<'de> Visitor<'de> for PieceVisitor {
    type Value = Piece;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a call")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Piece, A::Error> {
        let mut piece = Piece::default();
        while let Some(field) = fields.next_key::<String>()? {
            match field.as_str() {
                "index" => piece.index = fields.next_value()?,
                "id" => piece.id = fields.next_value()?,
                "function" => piece.function(fields.next_value()?),
                // Some servers leave out the object around the name and the arguments.
                "name" | "arguments" => {
                    let (name, arguments) = match field.as_str() {
                        "name" => (fields.next_value()?, None),
                        _ => (Text(None), fields.next_value()?),
                    };
                    piece.function(Some(Function { name, arguments }));
                }
                "type" => {
                    fields.next_value::<IgnoredAny>()?;
                }
                _ => {
                    keep(&mut piece.rest, field, fields.next_value()?);
                }
            }
        }
        Ok(piece)
    }
}
