//! The conversation in the form that all wires write: user messages, and steps of a model with their answers.
//!
//! Names and ids of other models are rewritten so that this server accepts them. Otherwise one refused name
//! or id would block the conversation permanently.

use crate::domain::hex::hex;
use crate::llm::{Input, ModelCall, ModelMessage, Speaker};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The longest name of a tool that every server accepts.
const NAME_MAX: usize = 64;
/// The longest id of a call that every server accepts.
const ID_MAX: usize = 40;
/// The longest id that servers with strict ids accept. Such servers make only ids of this form themselves.
const PLAIN_ID_MAX: usize = 64;
/// The key in a state that holds the index of a call, at the place of the call.
pub(super) const CALL: &str = "call";

/// An entry of the conversation.
pub(super) enum Entry<'a> {
    User(&'a str),
    Step(Step<'a>),
}

/// One step of a model, with the answers of its calls.
pub(super) struct Step<'a> {
    pub(super) text: &'a str,
    pub(super) calls: Vec<Call<'a>>,
    /// The answers, one for each call, in the order of the calls.
    pub(super) answers: Vec<ToolResult<'a>>,
    pub(super) speaker: &'a Speaker,
}

pub(super) struct Call<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) input: &'a Input,
}

pub(super) struct ToolResult<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) text: &'a str,
}

/// The ids of calls that a server accepts.
#[derive(Clone, Copy)]
pub(super) enum Ids {
    /// Any id that the server made itself, because the id may carry a meaning. Plain ids otherwise.
    Own,
    /// Plain ids only. The ids of the server itself are plain.
    Plain,
}

pub(super) fn entries(messages: &[ModelMessage], ids: Ids) -> Vec<Entry<'_>> {
    let mut entries = Vec::with_capacity(messages.len());
    for message in messages {
        match message {
            ModelMessage::User(text) => entries.push(Entry::User(text)),
            ModelMessage::Assistant { text, calls, speaker } => {
                let calls = calls.iter().map(|call| Call::of(call, speaker, ids)).collect();
                entries.push(Entry::Step(Step { text, calls, answers: Vec::new(), speaker }));
            }
            ModelMessage::Tool { call_id, tool_name, text } => {
                if let Some(Entry::Step(step)) = entries.last_mut() {
                    let id = id_for(call_id, step.speaker, ids);
                    step.answers.push(ToolResult { id, name: name(tool_name), text });
                }
            }
        }
    }
    entries
}

impl Step<'_> {
    /// Returns the state that the server wants back with this step.
    pub(super) fn state(&self) -> Option<&Value> {
        match self.speaker {
            Speaker::Same { provider_state } => provider_state.as_ref(),
            Speaker::Another => None,
        }
    }

    /// Returns the parts of a state that is a list, with the calls in their places. A call that the state
    /// does not name is placed at the end, because its answer follows.
    pub(super) fn placed(&self, write: impl Fn(&Call<'_>, Option<&Value>) -> Value) -> Option<Vec<Value>> {
        let kept = self.state()?.as_array()?;
        let mut named = vec![false; self.calls.len()];
        let mut parts = Vec::with_capacity(kept.len());
        for part in kept {
            let Some(index) = part.get(CALL).and_then(Value::as_u64) else {
                parts.push(part.clone());
                continue;
            };
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            if let (Some(call), Some(named)) = (self.calls.get(index), named.get_mut(index)) {
                *named = true;
                parts.push(write(call, Some(part)));
            }
        }
        let missing = self.calls.iter().zip(named).filter(|(_, named)| !named);
        parts.extend(missing.map(|(call, _)| write(call, None)));
        Some(parts)
    }
}

impl<'a> Call<'a> {
    fn of(call: &'a ModelCall, speaker: &Speaker, ids: Ids) -> Self {
        Self { id: id_for(&call.id, speaker, ids), name: name(&call.tool_name), input: &call.input }
    }
}

fn is_plain(it: char) -> bool {
    it.is_ascii_alphanumeric() || matches!(it, '_' | '-')
}

/// Returns the name of a tool in a form that servers accept. Models can invent names.
fn name(name: &str) -> Cow<'_, str> {
    if !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let plain = |it| if is_plain(it) { it } else { '_' };
    let fitting: String = name.chars().map(plain).take(NAME_MAX).collect();
    Cow::Owned(if fitting.is_empty() { "_".to_owned() } else { fitting })
}

/// Returns the id of a call in a form that the server accepts. The same id always gets the same form.
pub(super) fn id_for<'a>(id: &'a str, speaker: &Speaker, ids: Ids) -> Cow<'a, str> {
    let plain = |longest| (1..=longest).contains(&id.len()) && id.chars().all(is_plain);
    let fits = match (ids, speaker) {
        (Ids::Own, Speaker::Same { .. }) => true,
        (Ids::Own, Speaker::Another) => plain(ID_MAX),
        (Ids::Plain, _) => plain(PLAIN_ID_MAX),
    };
    if fits {
        return Cow::Borrowed(id);
    }
    let hash = Sha256::digest(id);
    Cow::Owned(format!("call_{}", hex(hash.get(..16).unwrap_or(&hash))))
}

/// Returns the text, or a placeholder for a blank text. Some servers refuse a conversation with a blank
/// message.
pub(super) fn spoken(words: &str) -> &str {
    if words.trim().is_empty() { "(blank)" } else { words }
}
