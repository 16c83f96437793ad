//! The conversation in the form that all wires write: user messages, and steps of a model with their answers.
//!
//! The form is one that every server takes: otherwise one refused name, id or order of messages would block the
//! conversation permanently. Names and ids of other models are rewritten. The speakers alternate: a fixed text of the
//! model is between two user messages, and between the answers to calls and a user message. Each of these depends
//! only on what is before it, so no byte of an earlier request changes.

use super::schema::SchemaRules;
use crate::{Input, ModelCall, ModelMessage, ModelRequest, Speaker, ToolChoice, ToolDefinition};
use holdpoint_core::text::model_texts::{NO_REPLY, NOT_OFFERED};
use holdpoint_core::wire_id;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The longest name of a tool that every server accepts.
const NAME_MAX: usize = 64;
/// The longest id that servers with strict ids accept. Such servers make only ids of this form themselves.
const PLAIN_ID_MAX: usize = 64;
/// The key in a state that holds the index of a call, at the place of the call.
pub(super) const CALL: &str = "call";

/// The step that is written where the model said nothing.
static NO_SPEAKER: Speaker = Speaker::Another;

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
    /// Any id that the server made itself, because the id may carry a meaning. Otherwise ids that every server takes.
    Own,
    /// Plain ids only. The ids of the server itself are plain.
    Plain,
}

/// The tools that a server is offered, and whether the model may call them.
pub(super) struct OfferedTools {
    pub(super) tools: Vec<Arc<ToolDefinition>>,
    pub(super) may_call: bool,
}

/// Returns the tools of a request. Servers refuse a conversation with calls if the request has no tools: then the
/// request has a stub of each tool that was called. Servers also refuse a word about the choice of tools without tools.
pub(super) fn offer(request: &ModelRequest, entries: &[Entry<'_>], rules: &SchemaRules) -> OfferedTools {
    let accepted = request.tools.iter().filter(|tool| rules.accepts_name(&tool.name));
    let tools: Vec<_> = accepted.cloned().collect();
    if !tools.is_empty() {
        return OfferedTools { tools, may_call: request.tool_choice == ToolChoice::Auto };
    }
    let called: BTreeSet<&str> = entries.iter().flat_map(Entry::calls).map(|call| &*call.name).collect();
    let stub = |name: &str| {
        let input_schema = json!({ "type": "object", "properties": {} });
        Arc::new(ToolDefinition { name: name.to_owned(), description: NOT_OFFERED.to_owned(), input_schema })
    };
    OfferedTools { tools: called.into_iter().map(stub).collect(), may_call: false }
}

pub(super) fn entries(messages: &[ModelMessage], ids: Ids) -> Vec<Entry<'_>> {
    let mut entries = Vec::with_capacity(messages.len());
    let mut forms = IdForms { ids, given: HashMap::new(), taken: HashSet::new() };
    for message in messages {
        match message {
            ModelMessage::User(text) => {
                if entries.last().is_some_and(Entry::expects_a_reply) {
                    let (calls, answers, speaker) = (Vec::new(), Vec::new(), &NO_SPEAKER);
                    entries.push(Entry::Step(Step { text: NO_REPLY, calls, answers, speaker }));
                }
                entries.push(Entry::User(text));
            }
            ModelMessage::Assistant { text, calls, speaker } => {
                let calls = calls.iter().map(|call| forms.call(call, speaker)).collect();
                entries.push(Entry::Step(Step { text, calls, answers: Vec::new(), speaker }));
            }
            ModelMessage::Tool { call_id, tool_name, text } => {
                if let Some(Entry::Step(step)) = entries.last_mut() {
                    let id = forms.answered(call_id, step.speaker);
                    step.answers.push(ToolResult { id, name: name(tool_name), text });
                }
            }
        }
    }
    entries
}

impl<'a> Entry<'a> {
    /// Whether the next message has to be the model's.
    const fn expects_a_reply(&self) -> bool {
        match self {
            Self::User(_) => true,
            Self::Step(step) => !step.answers.is_empty(),
        }
    }

    fn calls(&self) -> &[Call<'a>] {
        match self {
            Self::User(_) => &[],
            Self::Step(step) => &step.calls,
        }
    }
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

/// The forms of the ids of a conversation. No two calls have the same form.
struct IdForms<'a> {
    ids: Ids,
    given: HashMap<&'a str, Cow<'a, str>>,
    taken: HashSet<Cow<'a, str>>,
}

impl<'a> IdForms<'a> {
    fn call(&mut self, call: &'a ModelCall, speaker: &Speaker) -> Call<'a> {
        Call { id: self.next(&call.id, speaker), name: name(&call.tool_name), input: &call.input }
    }

    /// Returns the form of the id of a call that is answered.
    fn answered(&mut self, id: &'a str, speaker: &Speaker) -> Cow<'a, str> {
        let given = self.given.get(id).cloned();
        given.unwrap_or_else(|| self.next(id, speaker))
    }

    /// Returns the id in a form that the server accepts and that no earlier call has. The same id of the same
    /// conversation always gets the same form.
    fn next(&mut self, id: &'a str, speaker: &Speaker) -> Cow<'a, str> {
        let fits = match (self.ids, speaker) {
            (Ids::Own, Speaker::Same { .. }) => true,
            (Ids::Own, Speaker::Another) => wire_id::is_for_all(id),
            (Ids::Plain, _) => (1..=PLAIN_ID_MAX).contains(&id.len()) && id.chars().all(is_plain),
        };
        let itself = fits.then_some(Cow::Borrowed(id));
        let mut forms = itself.into_iter().chain(wire_id::candidates(id).map(Cow::Owned));
        let form = forms.find(|form| !self.taken.contains(form)).unwrap_or(Cow::Borrowed(id));
        self.taken.insert(form.clone());
        self.given.insert(id, form.clone());
        form
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

/// Returns the text, or a placeholder for a blank text. Some servers refuse a conversation with a blank
/// message.
pub(super) fn spoken(words: &str) -> &str {
    if words.trim().is_empty() { "(blank)" } else { words }
}
