//! An answer while it is read. Each wire adds the content that it reads. The end is the same for all wires.
//!
//! Servers say a thing in pieces, whole in a closing message, or both, and some say it twice. The rules are
//! here: a whole text counts only for what was not said before ([`TextSoFar`]), the last reason of an end counts,
//! and only the end of the stream makes it final. An answer at its end is complete, blank or broken
//! ([`Answer::end`]).

use super::failure::in_event;
use super::lenient;
use crate::{CALLS_MAX, ModelError, ModelEvent};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdpoint_core::json::surrogates;
use holdpoint_core::message::Usage;
use holdpoint_core::text::cut;
use holdpoint_core::turn::FinishReason;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::VecDeque;

/// The longest id of a call that is kept. Some servers encode a state into the id, and want it back.
const ID_BYTES_MAX: usize = 16 << 10;
/// The longest name of a tool that is kept.
const NAME_BYTES_MAX: usize = 256;
/// The shortest text that counts as a repetition if a closing frame says it again. Shorter texts repeat
/// themselves.
const REPEATED_BYTES_MIN: usize = 16;

/// The reader of one answer on one wire.
pub(super) trait AnswerReader: Send {
    /// Reads an event. `name` is its name, if it has one. A wire ignores an event with a name that it does not
    /// know.
    fn read(&mut self, name: Option<&str>, data: &str, answer: &mut Answer) -> Result<(), ModelError>;

    /// Returns the state that the server wants back with this answer. Called once, at the end of the answer.
    fn state(&mut self, answer: &Answer) -> Option<Value>;
}

/// A field of an answer that consists of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Text,
    Reasoning,
    /// The arguments of the call with this index.
    Arguments(usize),
}

/// What was said so far of one text of the answer, such as a block or an item.
#[derive(Debug, Default)]
pub(super) struct TextSoFar {
    text: String,
    pieces: usize,
}

impl TextSoFar {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns what a whole text adds to the pieces. The pieces cannot be taken back, so a whole text that
    /// differs from them adds nothing.
    fn unsaid(&self, whole: &str) -> Option<String> {
        let rest = whole.strip_prefix(&self.text);
        if rest.is_none() {
            let (said, whole) = (self.text.len(), whole.len());
            tracing::debug!(said, whole, "a whole text of the model differs from its pieces");
        }
        rest.map(str::to_owned)
    }

    /// Returns whether a piece in a closing frame is all of the text again.
    fn is_repeated_by(&self, piece: &str) -> bool {
        self.pieces > 1 && self.text.len() >= REPEATED_BYTES_MIN && self.text == piece
    }
}

#[derive(Debug)]
struct Call {
    name: String,
    arguments: TextSoFar,
    /// The beginning of the arguments, as long as it may be an empty object in front of what is meant.
    held: String,
    /// Whether the arguments are complete.
    ended: bool,
}

impl Call {
    /// The arguments so far.
    fn text(&self) -> &str {
        if self.arguments.is_empty() { &self.held } else { self.arguments.text() }
    }

    fn has_all(&self) -> bool {
        let arguments = self.text().trim_end();
        arguments.ends_with('}') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
    }
}

/// The content that was read so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Events that are not emitted yet.
    pub(super) events: VecDeque<ModelEvent>,
    /// Blank text before any content. It is emitted with the content.
    blank: Vec<ModelEvent>,
    /// Whether there is content: text or reasoning that is not blank, a call, a file or a source.
    has_content: bool,
    /// Whether content or a reason was read since the last question.
    changed: bool,
    calls: Vec<Call>,
    /// The first half of a pair of surrogates at the end of a field.
    half: Option<(Field, char)>,
    /// Whether the event that is read has marks of halves.
    pub(super) has_marks: bool,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
    /// Whether the server has ended its answer, so that the stream has no further content.
    over: bool,
    /// Whether the end is among the events.
    ended: bool,
}

impl Answer {
    /// Adds a piece of a text, and returns it as it was emitted.
    pub(super) fn say<'a>(&mut self, field: Field, said: &'a mut TextSoFar, piece: String) -> &'a str {
        let start = said.text.len();
        let piece = self.joined(field, piece);
        if !piece.is_empty() {
            said.text.push_str(&piece);
            said.pieces = said.pieces.saturating_add(1);
            self.emit(field, piece);
        }
        said.text.get(start..).unwrap_or_default()
    }

    /// Adds a whole text, as far as it was not said in pieces, and returns what was emitted.
    pub(super) fn say_whole<'a>(&mut self, field: Field, said: &'a mut TextSoFar, whole: String) -> &'a str {
        let whole = if self.has_marks { surrogates::joined(None, &whole).0 } else { whole };
        match said.unsaid(&whole) {
            Some(rest) if !rest.is_empty() => {
                // The whole text has what the half belongs to.
                self.half = self.half.filter(|(of, _)| *of != field);
                self.say(field, said, rest)
            }
            _ => "",
        }
    }

    /// Adds a piece of a closing frame. Some servers say all of the text there again.
    pub(super) fn say_last<'a>(&mut self, field: Field, said: &'a mut TextSoFar, piece: String) -> &'a str {
        if said.is_repeated_by(&piece) {
            tracing::debug!(bytes = piece.len(), "the last frame of the model repeats its text");
            return "";
        }
        self.say(field, said, piece)
    }

    /// Joins the halves of pairs of surrogates. A half waits only for the next piece of its own field.
    fn joined(&mut self, field: Field, piece: String) -> String {
        if piece.is_empty() || (self.half.is_none() && !self.has_marks) {
            return piece;
        }
        let own = self.half.is_some_and(|(of, _)| of == field);
        let before = if own { self.half.take().map(|(_, half)| half) } else { None };
        self.settle();
        if before.is_none() && !(self.has_marks && surrogates::has_marks(&piece)) {
            return piece;
        }
        let (piece, half) = surrogates::joined(before, &piece);
        self.half = half.map(|half| (field, half));
        piece
    }

    /// Emits U+FFFD for a half whose other half did not come.
    fn settle(&mut self) {
        if let Some((field, _)) = self.half.take() {
            self.emit(field, char::REPLACEMENT_CHARACTER.to_string());
        }
    }

    fn emit(&mut self, field: Field, text: String) {
        self.push(match field {
            Field::Text => ModelEvent::Text(text),
            Field::Reasoning => ModelEvent::Reasoning(text),
            Field::Arguments(index) => ModelEvent::CallArguments { index, delta: text },
        });
    }

    fn push(&mut self, event: ModelEvent) {
        self.changed = true;
        let is_blank = match &event {
            ModelEvent::Text(text) | ModelEvent::Reasoning(text) => text.trim().is_empty(),
            _ => false,
        };
        if is_blank && !self.has_content {
            self.blank.push(event);
            return;
        }
        self.has_content = true;
        self.events.extend(self.blank.drain(..));
        self.events.push_back(event);
    }

    /// Adds a web page that the text refers to. A URL or a title that is not a string counts as absent.
    pub(super) fn source(&mut self, url: Option<&Value>, title: Option<&Value>) {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        if let Some(url) = text(url) {
            self.push(ModelEvent::Source { url, title: text(title) });
        }
    }

    /// Adds a file, which is in Base64.
    pub(super) fn file(&mut self, media_type: String, data: &str) -> Result<(), ModelError> {
        let unreadable = |error| ModelError::Malformed(format!("a file cannot be decoded: {error}"));
        let data = STANDARD.decode(data).map_err(unreadable)?;
        self.settle();
        self.push(ModelEvent::File { media_type, data });
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
        let id = id.unwrap_or_default();
        if id.len() > ID_BYTES_MAX {
            tracing::warn!(bytes = id.len(), "the id of a call is too long to be kept; it gets another id");
        }
        self.say_held();
        self.settle();
        self.calls.push(Call {
            name: name.to_owned(),
            arguments: TextSoFar::default(),
            held: String::new(),
            ended: false,
        });
        self.push(ModelEvent::CallStarted {
            index,
            provider_call_id: if id.len() > ID_BYTES_MAX { String::new() } else { id },
            // A longer name is cut. No tool has such a name.
            tool_name: cut(name.to_owned(), NAME_BYTES_MAX),
        });
        Ok(index)
    }

    /// Returns the arguments that a server wrote as an object, with the escapes of lone halves as it wrote them:
    /// the gate has to refuse them.
    pub(super) fn as_written(&self, arguments: Option<Box<RawValue>>) -> Option<String> {
        let arguments = lenient::arguments(arguments)?;
        Some(if self.has_marks { surrogates::restored(&arguments) } else { arguments })
    }

    /// Adds a piece of the arguments of a call.
    pub(super) fn arguments(&mut self, index: usize, mut piece: String) {
        if let Some(call) = self.calls.get_mut(index).filter(|call| call.arguments.is_empty()) {
            call.held.push_str(&piece);
            if matches!(call.held.trim(), "" | "{" | "{}") {
                self.changed = true;
                return;
            }
            piece = after_empty(std::mem::take(&mut call.held));
        }
        self.with_arguments(index, |answer, said| {
            answer.say(Field::Arguments(index), said, piece);
        });
    }

    /// Adds the whole arguments of a call, as far as they were not said in pieces.
    pub(super) fn whole_arguments(&mut self, index: usize, whole: String) {
        let whole = after_empty(whole);
        if let Some(call) = self.calls.get_mut(index).filter(|_| !whole.is_empty()) {
            // The whole has what is held.
            call.held.clear();
        }
        self.with_arguments(index, |answer, said| {
            answer.say_whole(Field::Arguments(index), said, whole);
        });
    }

    fn with_arguments(&mut self, index: usize, add: impl FnOnce(&mut Self, &mut TextSoFar)) {
        let Some(call) = self.calls.get_mut(index) else { return };
        let mut said = std::mem::take(&mut call.arguments);
        add(self, &mut said);
        if let Some(call) = self.calls.get_mut(index) {
            call.arguments = said;
        }
    }

    /// Emits the empty objects behind which nothing else came. A server that begins another call has ended the calls before.
    fn say_held(&mut self) {
        for index in 0..self.calls.len() {
            let held =
                self.calls.get_mut(index).map(|call| std::mem::take(&mut call.held)).unwrap_or_default();
            self.with_arguments(index, |answer, said| {
                answer.say(Field::Arguments(index), said, held);
            });
        }
    }

    /// Returns the arguments of a call so far.
    pub(super) fn arguments_of(&self, index: usize) -> &str {
        self.calls.get(index).map(Call::text).unwrap_or_default()
    }

    pub(super) fn name_of(&self, index: usize) -> &str {
        self.calls.get(index).map(|call| call.name.as_str()).unwrap_or_default()
    }

    /// Returns whether the arguments of a call are a complete object.
    pub(super) fn has_all_arguments(&self, index: usize) -> bool {
        self.calls.get(index).is_some_and(Call::has_all)
    }

    /// Ends the arguments of a call.
    pub(super) fn call_ends(&mut self, index: usize) {
        if let Some(call) = self.calls.get_mut(index) {
            call.ended = true;
        }
    }

    /// Adds a call that arrived in one piece, and returns its index. The arguments stay as the server wrote
    /// them. The gate checks that they are valid and unambiguous.
    pub(super) fn whole_call(
        &mut self,
        id: Option<String>,
        name: &str,
        arguments: Option<String>,
    ) -> Result<usize, ModelError> {
        let index = self.call(id, name)?;
        // Whole arguments have no halves that wait.
        if let Some(arguments) = arguments.filter(|it| !it.is_empty()).map(after_empty) {
            self.with_arguments(index, |answer, said| {
                said.text.push_str(&arguments);
                answer.emit(Field::Arguments(index), arguments);
            });
        }
        self.call_ends(index);
        Ok(index)
    }

    /// Sets the tokens so far. An absent value and a zero keep the previous one.
    pub(super) fn usage(&mut self, input_tokens: Option<u64>, output_tokens: Option<u64>) {
        if input_tokens.is_some() || output_tokens.is_some() {
            let known = self.usage.unwrap_or_default();
            let last = |new: Option<u64>, known| new.filter(|count| *count > 0).unwrap_or(known);
            self.usage = Some(Usage {
                input_tokens: last(input_tokens, known.input_tokens),
                output_tokens: last(output_tokens, known.output_tokens),
            });
        }
    }

    /// Reads an object with counts of tokens, by the names that servers use.
    pub(super) fn counts(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let count = |names: [&str; 2]| names.into_iter().find_map(|name| lenient::count(usage.get(name)));
        self.usage(count(["prompt_tokens", "input_tokens"]), count(["completion_tokens", "output_tokens"]));
    }

    /// Sets the reason of the end. Content, the usage and the end of the stream may follow.
    pub(super) fn ends(&mut self, reason: FinishReason) {
        self.changed = true;
        self.reason = Some(reason);
    }

    /// Reads the server's word for the reason of the end.
    pub(super) fn ends_with(&mut self, word: &str) -> Result<(), ModelError> {
        self.ends(reason(word)?);
        Ok(())
    }

    /// Marks the end of the content.
    pub(super) fn over(&mut self) {
        self.over = true;
    }

    pub(super) const fn has_content(&self) -> bool {
        self.has_content
    }

    pub(super) const fn has_reason(&self) -> bool {
        self.reason.is_some()
    }

    /// Returns whether the reason of the end means that the last call may be cut off.
    pub(super) fn is_cut_off(&self) -> bool {
        self.reason.is_some_and(cuts_off)
    }

    /// Returns whether the answer would be complete if the stream ended now.
    pub(super) fn is_complete(&self) -> bool {
        self.reason.is_some_and(|reason| self.has_content || explains_nothing(reason))
    }

    /// Returns whether content or a reason was read since the last question.
    pub(super) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(super) const fn is_over(&self) -> bool {
        self.over
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Adds the final events.
    ///
    /// # Errors
    /// The answer is blank: it ends without content. Or it broke off: it has no reason, unless the server ended
    /// the stream itself after calls with whole arguments. While there is no content, the server counts as
    /// unavailable.
    pub(super) fn end(&mut self, state: impl FnOnce(&Self) -> Option<Value>) -> Result<(), ModelError> {
        self.say_held();
        self.settle();
        let unavailable = |why: &str| ModelError::Unavailable { why: why.to_owned(), retry_after: None };
        let calls = !self.calls.is_empty();
        let reason = match self.reason {
            Some(FinishReason::ToolCalls) if !calls => {
                return Err(ModelError::Malformed("it ended with tool calls and made none".to_owned()));
            }
            Some(reason) if !self.has_content && !explains_nothing(reason) => {
                return Err(unavailable("its answer is blank"));
            }
            Some(reason) => reason,
            None if self.over && calls && self.calls.iter().all(Call::has_all) => FinishReason::ToolCalls,
            None if !self.has_content => return Err(unavailable("it broke off before its answer")),
            None => return Err(ModelError::Malformed("it broke off before its end".to_owned())),
        };
        if self.over && !cuts_off(reason) {
            for call in &mut self.calls {
                call.ended |= call.has_all();
            }
        }
        let state = state(self).map(|state| if self.has_marks { without_marks(state) } else { state });
        self.events.extend(self.blank.drain(..));
        let ended = self.calls.iter().enumerate().filter(|(_, call)| call.ended);
        self.events.extend(ended.map(|(index, _)| ModelEvent::CallFinished { index }));
        self.events.push_back(ModelEvent::Finished { reason, usage: self.usage, provider_state: state });
        self.ended = true;
        Ok(())
    }
}

/// Returns the arguments without an empty object before another one: some servers begin each call with `{}`, and then write
/// what is meant behind it.
fn after_empty(arguments: String) -> String {
    let rest = arguments.trim_start().strip_prefix("{}").map(str::trim_start);
    rest.filter(|rest| rest.starts_with('{')).map(str::to_owned).unwrap_or(arguments)
}

/// What tells the parts of an answer apart: the blocks, the items or the calls.
#[derive(Debug, Default)]
pub(super) struct Identity {
    /// The kind, and the name of a call. Empty if unknown.
    pub(super) name: String,
    pub(super) ids: [Option<String>; 2],
}

impl Identity {
    fn shares_an_id_with(&self, other: &Self) -> bool {
        self.ids.iter().zip(&other.ids).any(|(id, other)| id.is_some() && id == other)
    }
}

/// Returns for each part of a whole message the part of the stream that it repeats. A part is the one with its
/// id. The others are paired by their names, in their order, because some servers give a part another id in the
/// message, and no call may be made twice.
pub(super) fn pairs(whole: &[Identity], said: &[Identity]) -> Vec<Option<usize>> {
    let mut free: Vec<usize> = (0..said.len()).collect();
    let mut pairs = vec![None; whole.len()];
    for by_id in [true, false] {
        for (place, (part, pair)) in
            whole.iter().zip(&mut pairs).enumerate().filter(|(_, (_, it))| it.is_none())
        {
            let fits = |at: &usize| {
                let named = |it: &&Identity| part.name.is_empty() || it.name == part.name;
                said.get(*at).filter(named).is_some_and(|it| !by_id || part.shares_an_id_with(it))
            };
            let here = free.iter().position(|at| *at == place && fits(at));
            if let Some(found) = here.or_else(|| free.iter().position(fits)) {
                *pair = Some(free.remove(found));
            }
        }
    }
    pairs
}

/// Returns whether an answer for this reason may have no content.
const fn explains_nothing(reason: FinishReason) -> bool {
    cuts_off(reason)
}

/// Returns whether a server that ends for this reason may have cut off its last call.
const fn cuts_off(reason: FinishReason) -> bool {
    matches!(reason, FinishReason::Length | FinishReason::ContentFilter)
}

/// Returns the reason for the word of a server.
///
/// # Errors
/// The word says that the server failed.
fn reason(word: &str) -> Result<FinishReason, ModelError> {
    /// Parts of words for a limit, for a filter and for a failure.
    const LENGTH: [&str; 5] = ["length", "max_tokens", "max_output", "context_window", "token_limit"];
    const FILTER: [&str; 8] =
        ["filter", "safety", "refusal", "recitation", "blocklist", "prohibited", "spii", "sensitive"];
    const FAILED: [&str; 5] = ["error", "abort", "cancel", "insufficient_system_resource", "overload"];

    let lower = word.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    Ok(match lower.as_str() {
        "stop" | "end_turn" | "stop_sequence" | "eos" | "eos_token" | "end" | "completed" | "complete" => {
            FinishReason::Stop
        }
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => FinishReason::ToolCalls,
        _ if has(&LENGTH) => FinishReason::Length,
        _ if has(&FILTER) => FinishReason::ContentFilter,
        "error" => return Err(ModelError::Upstream("it ended its answer with an error".to_owned())),
        _ if has(&FAILED) => return Err(ModelError::Unavailable { why: lower, retry_after: None }),
        _ => FinishReason::Other,
    })
}

/// Returns a state without marks of halves.
fn without_marks(state: Value) -> Value {
    match state {
        Value::String(text) => Value::String(surrogates::joined(None, &text).0),
        Value::Array(items) => items.into_iter().map(without_marks).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(field, value)| (field, without_marks(value))).collect()
        }
        other => other,
    }
}

/// Converts a parse error of an event.
pub(super) fn unreadable(error: serde_json::Error) -> ModelError {
    ModelError::Malformed(error.to_string())
}

/// Returns the error in an event, if `error` contains one.
pub(super) fn error_in_stream(error: Option<&Value>) -> Result<(), ModelError> {
    match error {
        None | Some(Value::Null | Value::Bool(false)) => Ok(()),
        Some(Value::String(error)) if error.is_empty() => Ok(()),
        Some(Value::Object(error)) if error.is_empty() => Ok(()),
        Some(error) => Err(in_event(error)),
    }
}
