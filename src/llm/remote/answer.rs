//! An answer while it is read: the wires put into it what they read, and it ends them all alike.

use super::transport::sentence;
use crate::domain::call::cut;
use crate::domain::message::Usage;
use crate::domain::turn::FinishReason;
use crate::llm::{CALLS_MAX, ModelError, ModelEvent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::VecDeque;

/// Longest id of a call that is kept. Some servers put what they want back into it.
const ID_BYTES_MAX: usize = 2048;
/// Longest name of a tool that is kept.
const NAME_BYTES_MAX: usize = 256;

/// Reads one answer of a wire.
pub(super) trait Reading: Send {
    /// Reads the data of one event.
    fn read(&mut self, data: &str, answer: &mut Answer) -> Result<(), ModelError>;

    /// What the server wants back with this answer; asked once, at its end.
    fn state(&mut self) -> Option<Value>;
}

/// What was read so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// What is not told yet.
    pub(super) events: VecDeque<ModelEvent>,
    /// Whether the arguments of each call have ended.
    calls: Vec<bool>,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
    /// Whether there is nothing more to read.
    over: bool,
    /// Whether its end is told.
    ended: bool,
}

impl Answer {
    /// More words.
    pub(super) fn text(&mut self, text: String) {
        if !text.is_empty() {
            self.events.push_back(ModelEvent::Text(text));
        }
    }

    /// More thoughts.
    pub(super) fn reasoning(&mut self, text: String) {
        if !text.is_empty() {
            self.events.push_back(ModelEvent::Reasoning(text));
        }
    }

    /// A page of the web that the words go back to. What is no text is not there.
    pub(super) fn source(&mut self, url: Option<&Value>, title: Option<&Value>) {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        if let Some(url) = text(url) {
            self.events.push_back(ModelEvent::Source { url, title: text(title) });
        }
    }

    /// A file, in Base64.
    pub(super) fn file(&mut self, media_type: String, data: &str) -> Result<(), ModelError> {
        let unreadable = |error| ModelError::Malformed(format!("a file of it: {error}"));
        let data = STANDARD.decode(data).map_err(unreadable)?;
        self.events.push_back(ModelEvent::File { media_type, data });
        Ok(())
    }

    /// A call begins; its index. An id that is empty is none.
    pub(super) fn call(&mut self, id: Option<String>, name: &str) -> Result<usize, ModelError> {
        if name.is_empty() {
            return Err(ModelError::Malformed("a call of it names no tool".to_owned()));
        }
        let index = self.calls.len();
        if index >= CALLS_MAX {
            return Err(ModelError::Malformed(format!("more than {CALLS_MAX} calls")));
        }
        self.calls.push(false);
        self.events.push_back(ModelEvent::CallStarted {
            index,
            // What is longer is no id that can be kept.
            provider_call_id: id.filter(|id| id.len() <= ID_BYTES_MAX).unwrap_or_default(),
            // Nor is it a tool's name, and none is called so.
            tool_name: cut(name.to_owned(), NAME_BYTES_MAX),
        });
        Ok(index)
    }

    /// More of a call's arguments.
    pub(super) fn arguments(&mut self, index: usize, delta: String) {
        if !delta.is_empty() {
            self.events.push_back(ModelEvent::CallArguments { index, delta });
        }
    }

    /// A call's arguments have ended.
    pub(super) fn call_ends(&mut self, index: usize) {
        if let Some(ended) = self.calls.get_mut(index) {
            *ended = true;
        }
    }

    /// A call that came in one piece; its index. The arguments are as they were written: whether they can be read, and
    /// in one way only, is for the gate to say.
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

    /// What it cost so far; what is not told stays.
    pub(super) fn usage(&mut self, input_tokens: Option<u64>, output_tokens: Option<u64>) {
        if input_tokens.is_some() || output_tokens.is_some() {
            let known = self.usage.unwrap_or_default();
            self.usage = Some(Usage {
                input_tokens: input_tokens.unwrap_or(known.input_tokens),
                output_tokens: output_tokens.unwrap_or(known.output_tokens),
            });
        }
    }

    /// Why it ends. More may follow: the cost, the end of the stream.
    pub(super) fn ends(&mut self, reason: FinishReason) {
        self.reason = Some(reason);
    }

    /// There is nothing more to read.
    pub(super) fn over(&mut self) {
        self.over = true;
    }

    /// Whether it has said why it ends.
    pub(super) fn is_whole(&self) -> bool {
        self.reason.is_some()
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Tells the end. Without a reason from the server there is none: it broke off.
    pub(super) fn end(&mut self, state: Option<Value>) -> Result<(), ModelError> {
        let reason =
            self.reason.ok_or_else(|| ModelError::Malformed("it broke off before its end".to_owned()))?;
        if reason == FinishReason::ToolCalls && self.calls.is_empty() {
            return Err(ModelError::Malformed("it ended for calls and made none".to_owned()));
        }
        let ended = self.calls.iter().enumerate().filter(|(_, ended)| **ended);
        self.events.extend(ended.map(|(index, _)| ModelEvent::CallFinished { index }));
        self.events.push_back(ModelEvent::Finished { reason, usage: self.usage, provider_state: state });
        self.ended = true;
        Ok(())
    }
}

/// What is not what the wire says.
pub(super) fn unreadable(error: serde_json::Error) -> ModelError {
    ModelError::Malformed(error.to_string())
}

/// An error that stands in the stream, where `error` is one.
pub(super) fn error_in_stream(error: Option<&Value>) -> Result<(), ModelError> {
    /// Words by which servers say that they have too much to do.
    const FOR_NOW: [&str; 6] =
        ["overloaded", "rate_limit", "unavailable", "server_error", "api_error", "exhausted"];

    let error = match error {
        None | Some(Value::Null | Value::Bool(false)) => return Ok(()),
        Some(Value::String(error)) if error.is_empty() => return Ok(()),
        Some(Value::Object(error)) if error.is_empty() => return Ok(()),
        Some(error) => error,
    };
    let said = sentence(error).or_else(|| error.as_str()).unwrap_or("without a word");
    let why = format!("error in the stream: {said}");
    let kinds = ["type", "code", "status"].iter().filter_map(|field| error.get(field)?.as_str());
    let kinds: Vec<_> = kinds.map(str::to_ascii_lowercase).collect();
    let status = error.get("code").and_then(Value::as_u64).unwrap_or_default();
    let for_now = kinds.iter().any(|kind| FOR_NOW.iter().any(|word| kind.contains(word)));
    if for_now || status == 429 || (500..600).contains(&status) {
        return Err(ModelError::Unavailable { why, retry_after: None });
    }
    Err(ModelError::Upstream(why))
}
