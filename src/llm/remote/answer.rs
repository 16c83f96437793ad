//! An answer while it is read. Each wire adds the content that it reads. The end is the same for all wires.

use super::context::{self, sentence};
use crate::domain::message::Usage;
use crate::domain::text::cut;
use crate::domain::turn::FinishReason;
use crate::llm::{CALLS_MAX, ModelError, ModelEvent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::VecDeque;

/// The longest id of a call that is kept. Some servers encode a state into the id.
const ID_BYTES_MAX: usize = 2048;
/// The longest name of a tool that is kept.
const NAME_BYTES_MAX: usize = 256;

/// The reader of one answer on one wire.
pub(super) trait Reading: Send {
    /// Reads the data of one event.
    fn read(&mut self, data: &str, answer: &mut Answer) -> Result<(), ModelError>;

    /// Returns the state that the server wants back with this answer. Called once, at the end of the answer.
    fn state(&mut self) -> Option<Value>;
}

/// The content that was read so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Events that are not emitted yet.
    pub(super) events: VecDeque<ModelEvent>,
    /// Whether the arguments of each call are complete.
    calls: Vec<bool>,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
    /// Whether the stream has no further content.
    over: bool,
    /// Whether the end is among the events.
    ended: bool,
}

impl Answer {
    /// Adds text.
    pub(super) fn text(&mut self, text: String) {
        if !text.is_empty() {
            self.events.push_back(ModelEvent::Text(text));
        }
    }

    /// Adds reasoning.
    pub(super) fn reasoning(&mut self, text: String) {
        if !text.is_empty() {
            self.events.push_back(ModelEvent::Reasoning(text));
        }
    }

    /// Adds a web page that the text refers to. A URL or a title that is not a string counts as absent.
    pub(super) fn source(&mut self, url: Option<&Value>, title: Option<&Value>) {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        if let Some(url) = text(url) {
            self.events.push_back(ModelEvent::Source { url, title: text(title) });
        }
    }

    /// Adds a file, which is in Base64.
    pub(super) fn file(&mut self, media_type: String, data: &str) -> Result<(), ModelError> {
        let unreadable = |error| ModelError::Malformed(format!("a file cannot be decoded: {error}"));
        let data = STANDARD.decode(data).map_err(unreadable)?;
        self.events.push_back(ModelEvent::File { media_type, data });
        Ok(())
    }

    /// Starts a call and returns its index. An empty id counts as absent.
    pub(super) fn call(&mut self, id: Option<String>, name: &str) -> Result<usize, ModelError> {
        if name.is_empty() {
            return Err(ModelError::Malformed("a call names no tool".to_owned()));
        }
        let index = self.calls.len();
        if index >= CALLS_MAX {
            return Err(ModelError::Malformed(format!("more than {CALLS_MAX} calls")));
        }
        self.calls.push(false);
        self.events.push_back(ModelEvent::CallStarted {
            index,
            // A longer id cannot be kept.
            provider_call_id: id.filter(|id| id.len() <= ID_BYTES_MAX).unwrap_or_default(),
            // A longer name is cut. No tool has such a name.
            tool_name: cut(name.to_owned(), NAME_BYTES_MAX),
        });
        Ok(index)
    }

    /// Adds a piece of the arguments of a call.
    pub(super) fn arguments(&mut self, index: usize, delta: String) {
        if !delta.is_empty() {
            self.events.push_back(ModelEvent::CallArguments { index, delta });
        }
    }

    /// Ends the arguments of a call.
    pub(super) fn call_ends(&mut self, index: usize) {
        if let Some(ended) = self.calls.get_mut(index) {
            *ended = true;
        }
    }

    /// Adds a call that arrived in one piece, and returns its index. The arguments stay as the server wrote
    /// them. The gate checks that they are valid and unambiguous.
    pub(super) fn whole_call(
        &mut self,
        id: Option<String>,
        name: &str,
        arguments: Option<Box<RawValue>>,
    ) -> Result<usize, ModelError> {
        let index = self.call(id, name)?;
        if let Some(arguments) = arguments.filter(|arguments| arguments.get() != "null") {
            self.arguments(index, arguments.get().to_owned());
        }
        self.call_ends(index);
        Ok(index)
    }

    /// Sets the tokens so far. An absent value keeps the previous one.
    pub(super) fn usage(&mut self, input_tokens: Option<u64>, output_tokens: Option<u64>) {
        if input_tokens.is_some() || output_tokens.is_some() {
            let known = self.usage.unwrap_or_default();
            self.usage = Some(Usage {
                input_tokens: input_tokens.unwrap_or(known.input_tokens),
                output_tokens: output_tokens.unwrap_or(known.output_tokens),
            });
        }
    }

    /// Sets the reason of the end. The usage and the end of the stream may follow.
    pub(super) fn ends(&mut self, reason: FinishReason) {
        self.reason = Some(reason);
    }

    /// Marks the end of the content.
    pub(super) fn over(&mut self) {
        self.over = true;
    }

    /// Returns whether the server has given the reason of the end.
    pub(super) fn is_complete(&self) -> bool {
        self.reason.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Adds the final events. An answer without a reason from the server broke off, which is an error.
    pub(super) fn end(&mut self, state: Option<Value>) -> Result<(), ModelError> {
        let reason =
            self.reason.ok_or_else(|| ModelError::Malformed("it broke off before its end".to_owned()))?;
        if reason == FinishReason::ToolCalls && self.calls.is_empty() {
            return Err(ModelError::Malformed("it ended with tool calls and made none".to_owned()));
        }
        let ended = self.calls.iter().enumerate().filter(|(_, ended)| **ended);
        self.events.extend(ended.map(|(index, _)| ModelEvent::CallFinished { index }));
        self.events.push_back(ModelEvent::Finished { reason, usage: self.usage, provider_state: state });
        self.ended = true;
        Ok(())
    }
}

/// Converts a parse error of an event.
pub(super) fn unreadable(error: serde_json::Error) -> ModelError {
    ModelError::Malformed(error.to_string())
}

/// Returns the error in an event, if `error` contains one.
pub(super) fn error_in_stream(error: Option<&Value>) -> Result<(), ModelError> {
    /// Words in error codes that indicate a temporary failure.
    const FOR_NOW: [&str; 6] =
        ["overloaded", "rate_limit", "unavailable", "server_error", "api_error", "exhausted"];

    let error = match error {
        None | Some(Value::Null | Value::Bool(false)) => return Ok(()),
        Some(Value::String(error)) if error.is_empty() => return Ok(()),
        Some(Value::Object(error)) if error.is_empty() => return Ok(()),
        Some(error) => error,
    };
    let message = sentence(error).or_else(|| error.as_str()).unwrap_or("no message");
    let why = format!("error in the stream: {message}");
    if context::says_full(error) {
        return Err(ModelError::ContextFull(why));
    }
    let kinds = ["type", "code", "status"].iter().filter_map(|field| error.get(field)?.as_str());
    let kinds: Vec<_> = kinds.map(str::to_ascii_lowercase).collect();
    let status = error.get("code").and_then(Value::as_u64).unwrap_or_default();
    let for_now = kinds.iter().any(|kind| FOR_NOW.iter().any(|word| kind.contains(word)));
    if for_now || status == 429 || (500..600).contains(&status) {
        return Err(ModelError::Unavailable { why, retry_after: None });
    }
    Err(ModelError::Upstream(why))
}
