//! The elements that the streams and the messages share.

use holdpoint_core::id::ToolCallId;
use holdpoint_core::message::Usage;
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::ShownInput;
use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// A tool's input or output. Pages reject a whole chunk if it contains, at any depth, a name that could
/// change the prototype of an object (`secureJsonParse` of `@ai-sdk/provider-utils`). Such a value is written
/// as its JSON text, so that an approver sees all of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Readable<'a> {
    /// The named inputs of a call.
    Input(&'a ShownInput),
    Output(&'a Value),
}

impl Serialize for Readable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Input(input) if has_refused_names(input.as_input()) => text(input, serializer),
            Self::Input(input) => input.serialize(serializer),
            Self::Output(output) if is_refused(output) => text(output, serializer),
            Self::Output(output) => output.serialize(serializer),
        }
    }
}

/// The inputs of a call, as [`Readable`].
#[derive(Debug)]
pub(crate) struct ReadableInput(pub(crate) ShownInput);

impl Serialize for ReadableInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Readable::Input(&self.0).serialize(serializer)
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
    // The first releases fail at a `null` under this name.
    let refused = |it: &Value| it.is_null() || it.get("prototype").is_some();
    fields.contains_key("__proto__")
        || fields.get("constructor").is_some_and(refused)
        || fields.values().any(is_refused)
}

/// The label of a held call, for pages of AI SDK 5.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Validation {
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) validated: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Metadata {
    usage: Tokens,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
}

impl Metadata {
    /// Creates the metadata of a message with this usage.
    pub(crate) fn of(usage: Usage) -> Self {
        let Usage { input_tokens, output_tokens } = usage;
        Self { usage: Tokens { input_tokens, output_tokens } }
    }
}
