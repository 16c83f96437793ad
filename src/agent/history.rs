//! History: the input of the model, computed from the rows and from the texts that the model has read before.
//!
//! Exactly one answer follows every call of an assistant message, in order. A text that was sent once is sent
//! again unchanged, regardless of the end of the call. A note before the next user message reports a later
//! outcome. So no byte of an earlier request changes.
//!
//! A note is a user message to the model, because no wire format has another place for it. So the text that
//! begins a note must have no other source: in a user's own text, and in a tool's text within a note, it is
//! marked as quoted.

use super::window::Outline;
use holdpoint_core::call::ToolCall;
use holdpoint_core::id::{MessageId, ToolCallId};
use holdpoint_core::message::{Body, MessageStatus, Part, Step, StepStatus, Window};
use holdpoint_core::text::model_texts;
use holdpoint_models::{ModelCall, ModelMessage, Speaker};
use holdpoint_store::{SealKind, SealedText, SentText, Transcript};
use std::collections::{HashMap, HashSet};

/// The input of the model, and the seals of the texts that are sent for the first time.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) messages: Vec<ModelMessage>,
    pub(super) seals: Vec<SealedText>,
    /// The turns of the messages.
    pub(super) outline: Outline,
}

/// Computes the history for the next step of `answer`. New notes go into the first step only: in a later step
/// they would precede a user message that was already sent.
pub(crate) fn project(transcript: &Transcript, answer: MessageId, first_step: bool, origin: &str) -> History {
    let history = History { messages: Vec::with_capacity(transcript.messages.len()), ..History::default() };
    let (sent_notes, turn_of) = (sent_notes(transcript), turns_of(transcript));
    let mut windows = windows(transcript, origin);
    let mut projection = Projection { transcript, origin, history, sent_notes, turn_of };
    let question = transcript.questions.get(&answer).copied();
    for message in transcript.current() {
        match &message.body {
            Body::User(text) => {
                let start = projection.history.messages.len();
                projection.repeat_notes(message.id);
                if first_step && question == Some(message.id) {
                    projection.new_notes();
                }
                projection.history.messages.push(ModelMessage::User(quoted(text)));
                let (asked, windows) =
                    (projection.history.messages.len(), windows.remove(&message.id).unwrap_or_default());
                projection.history.outline.begin(start, asked, windows);
            }
            Body::Assistant(steps) => {
                for step in steps.iter().filter(|step| step.status == StepStatus::Complete) {
                    projection.step(step);
                }
            }
        }
    }
    projection.history
}

/// Computes what the next step of a turn adds to the history: a step of the turn, and the answers to its calls. What the
/// model read before stays as it was sent, so the rest of the transcript is not read again.
pub(crate) fn project_step(step: &Step, origin: &str) -> History {
    let transcript = &Transcript::default();
    let mut projection = Projection {
        transcript,
        origin,
        history: History::default(),
        sent_notes: HashMap::new(),
        turn_of: HashMap::new(),
    };
    projection.step(step);
    projection.history
}

struct Projection<'a> {
    transcript: &'a Transcript,
    origin: &'a str,
    history: History,
    /// The notes that were sent before each user message, in the order in which they were sent.
    sent_notes: HashMap<MessageId, Vec<&'a str>>,
    /// The number of the turn of each user message.
    turn_of: HashMap<MessageId, usize>,
}

/// Numbers the user messages that the model reads.
fn turns_of(transcript: &Transcript) -> HashMap<MessageId, usize> {
    let of_users = transcript.current().filter(|message| matches!(message.body, Body::User(_)));
    of_users.enumerate().map(|(turn, message)| (message.id, turn)).collect()
}

/// Finds the windows of the answers to each user message: of the current one, written by any model, and of all that this
/// model wrote. A superseded answer counts too, so that no window moves back when the user asks for another answer.
fn windows(transcript: &Transcript, origin: &str) -> HashMap<MessageId, [Window; 2]> {
    let mut windows: HashMap<MessageId, [Window; 2]> = HashMap::new();
    for message in &transcript.messages {
        let Some(question) = transcript.questions.get(&message.id) else { continue };
        for step in message.steps().iter().filter(|step| step.window != Window::default()) {
            let [sent_in, own] = windows.entry(*question).or_default();
            if message.status != MessageStatus::Superseded {
                *sent_in = sent_in.narrowed_by(step.window);
            }
            if step.origin.as_deref() == Some(origin) {
                *own = own.narrowed_by(step.window);
            }
        }
    }
    windows
}

/// Finds the notes that were sent before each user message.
fn sent_notes(transcript: &Transcript) -> HashMap<MessageId, Vec<&str>> {
    let mut notes: HashMap<MessageId, Vec<(ToolCallId, &str)>> = HashMap::new();
    for (call, texts) in &transcript.sent {
        for sent in texts.iter().filter(|sent| sent.kind == SealKind::Note) {
            notes.entry(sent.message_id).or_default().push((*call, &sent.text));
        }
    }
    let mut before: HashMap<MessageId, Vec<&str>> = HashMap::new();
    if notes.is_empty() {
        return before;
    }
    for message in &transcript.messages {
        let Some(question) = transcript.questions.get(&message.id) else { continue };
        let Some(mut sent_there) = notes.remove(&message.id) else { continue };
        sent_there.sort_unstable();
        before.entry(*question).or_default().extend(sent_there.into_iter().map(|(_, text)| text));
    }
    before
}

impl Projection<'_> {
    fn step(&mut self, step: &Step) {
        let mut text = String::new();
        for part in &step.parts {
            if let Part::Text { text: more } = part {
                text.push_str(more);
            }
        }
        if text.is_empty() && step.calls.is_empty() {
            return;
        }
        if let Some(usage) = step.usage {
            self.history.outline.counted(self.history.messages.len(), usage.input_tokens);
        }
        let mut calls = Vec::with_capacity(step.calls.len());
        let mut answers = Vec::with_capacity(step.calls.len());
        for call in &step.calls {
            let (kind, sent_texts) = self.answer(call);
            if kind == SealKind::Placeholder {
                self.history.outline.is_read_in(self.read_in(call.id));
            }
            // A call that was sent with a placeholder keeps its input. The note reports the edit.
            let input = match kind {
                SealKind::Placeholder => call.written_input(),
                SealKind::Answer | SealKind::Note => call.input_for_model(),
            };
            calls.push(ModelCall {
                id: call.wire_call_id.clone(),
                tool_name: call.name.clone(),
                input: input.clone(),
            });
            answers.push(ModelMessage::Tool {
                call_id: call.wire_call_id.clone(),
                tool_name: call.name.clone(),
                text: sent_texts,
            });
        }
        let speaker = if step.origin.as_deref() == Some(self.origin) {
            Speaker::Same { provider_state: step.provider_state.clone() }
        } else {
            Speaker::Another
        };
        self.history.messages.push(ModelMessage::Assistant { text, calls, speaker });
        self.history.messages.extend(answers);
    }

    /// Returns the one answer of a call: the text that was sent first, otherwise the current text.
    fn answer(&mut self, call: &ToolCall) -> (SealKind, String) {
        if let Some(first) = self.transcript.texts_of(call.id).first() {
            return (first.kind, first.text.clone());
        }
        let (kind, text) = match call.text_for_model() {
            Some(text) => (SealKind::Answer, text.into_owned()),
            None => (SealKind::Placeholder, call.placeholder().to_owned()),
        };
        self.history.seals.push(SealedText { tool_call_id: call.id, n: 0, kind, text: text.clone() });
        (kind, text)
    }

    /// Returns the first turn in which the model has read the outcome of a call with a placeholder: the one after the
    /// turn of the note.
    fn read_in(&self, call: ToolCallId) -> usize {
        let notes = self.transcript.texts_of(call).iter().filter(|sent| sent.kind == SealKind::Note);
        let turns =
            notes.filter_map(|note| self.turn_of.get(self.transcript.questions.get(&note.message_id)?));
        turns.min().map_or(usize::MAX, |turn| turn.saturating_add(1))
    }

    /// Adds the notes that were sent before this user message.
    fn repeat_notes(&mut self, question: MessageId) {
        let notes = self.sent_notes.remove(&question).unwrap_or_default();
        self.history.messages.extend(notes.into_iter().map(|text| ModelMessage::User(text.to_owned())));
    }

    /// Adds notes for outcomes that the model read differently, or did not read because their message was
    /// superseded.
    fn new_notes(&mut self) {
        let current: HashSet<MessageId> = self.transcript.current().map(|message| message.id).collect();
        let mut due = Vec::new();
        for message in &self.transcript.messages {
            let cut_off = message.status == MessageStatus::Superseded;
            due.extend(message.calls().filter_map(|call| self.due_note(call, cut_off, &current)));
        }
        due.sort_by_key(|(id, _)| *id);
        for (tool_call_id, text) in due {
            let n = i32::try_from(self.transcript.texts_of(tool_call_id).len()).unwrap_or(i32::MAX);
            self.history.seals.push(SealedText { tool_call_id, n, kind: SealKind::Note, text: text.clone() });
            self.history.messages.push(ModelMessage::User(text));
        }
    }

    fn due_note(
        &self,
        call: &ToolCall,
        cut_off: bool,
        current: &HashSet<MessageId>,
    ) -> Option<(ToolCallId, String)> {
        let text = call.text_for_model()?;
        let outcome = quoted(&format!("{}, call {}: {}", call.name, call.wire_call_id, text));
        let note = format!("{} {outcome}", model_texts::NOTE);
        let sent_texts = self.transcript.texts_of(call.id);
        let is_on_branch = |sent: &SentText| {
            let question = self.transcript.questions.get(&sent.message_id);
            question.is_some_and(|question| current.contains(question))
        };
        if cut_off {
            // This branch does not have what the superseded branch read. Only an effect is worth a note.
            call.execution()?;
            let known = sent_texts.iter().any(|sent| sent.text == note && is_on_branch(sent));
            return (!known).then_some((call.id, note));
        }
        // A note before a superseded message is no longer sent.
        let last = sent_texts.iter().rfind(|sent| sent.kind != SealKind::Note || is_on_branch(sent))?;
        (last.text != text && last.text != note).then_some((call.id, note))
    }
}

/// Quotes every beginning of a note in a text of another author.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (at, found) in text.to_ascii_lowercase().match_indices(model_texts::NOTE) {
        out.push_str(text.get(from..at).unwrap_or_default());
        out.push_str(model_texts::QUOTED_NOTE);
        from = at + found.len();
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out
}
