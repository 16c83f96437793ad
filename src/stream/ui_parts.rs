//! What UI message streams are made of, and the messages that pages of AI SDK 5 to 7 hold after them too.

use crate::domain::call::Input;
use crate::domain::id::ToolCallId;
use crate::domain::message::Usage;
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A tool's input or output. Pages refuse a whole chunk for names that could change what their objects are
/// (`secureJsonParse` of `@ai-sdk/provider-utils`), wherever in it these stand. Such a value is shown as its JSON text:
/// nothing of it is hidden from who decides.
#[derive(Debug, Clone, Copy)]
pub(super) enum Readable<'a> {
    /// The named inputs of a call.
    Input(&'a Input),
    /// What a tool gave.
    Output(&'a Value),
}

impl Serialize for Readable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Input(input) if has_refused_names(input) => text(input, serializer),
            Self::Input(input) => input.serialize(serializer),
            Self::Output(output) if is_refused(output) => text(output, serializer),
            Self::Output(output) => output.serialize(serializer),
        }
    }
}

fn text<S: Serializer>(value: &impl Serialize, serializer: S) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_string(value).map_err(S::Error::custom)?;
    serializer.serialize_str(&text)
}

fn is_refused(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(is_refused),
        Value::Object(fields) => has_refused_names(fields),
        _ => false,
    }
}

fn has_refused_names(fields: &Input) -> bool {
    // The first releases fail at a null there.
    let refused = |it: &Value| it.is_null() || it.get("prototype").is_some();
    fields.contains_key("__proto__")
        || fields.get("constructor").is_some_and(refused)
        || fields.values().any(is_refused)
}

/// How a held call stands, for pages of 5.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Validation {
    pub(super) tool_call_id: ToolCallId,
    pub(super) validated: &'static str,
}

/// What a page keeps beside the parts of a message.
#[derive(Debug, Serialize)]
pub(super) struct Metadata {
    usage: Tokens,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
}

impl Metadata {
    /// Of a message that cost so much.
    pub(super) fn of(usage: Usage) -> Self {
        let Usage { input_tokens, output_tokens } = usage;
        Self { usage: Tokens { input_tokens, output_tokens } }
    }
}
