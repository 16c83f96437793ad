//! History: what the model reads, computed from rows and from what it was told before.
//!
//! Every call of an assistant's message is followed by exactly one answer, in order. Words that were sent
//! once are sent again unchanged, whatever became of the call since; a later outcome is told as a note before
//! the next user message. So no byte of an earlier request changes.
//!
//! A note is a user message to the model, because no wire has another place for it. What begins it is therefore told
//! of nobody else: in a user's own words, and in what a tool says within a note, it is marked as quoted.

use crate::domain::call::{ToolCall, model_texts};
use crate::domain::id::{MessageId, ToolCallId};
use crate::domain::message::{Body, MessageStatus, Part, Step, StepStatus};
use crate::llm::{ModelCall, ModelMessage, Speaker};
use crate::store::{Seal, SealKind, Sent, Transcript};
use std::collections::HashSet;

/// What the model reads, and what of it is said for the first time.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) messages: Vec<ModelMessage>,
    pub(super) seals: Vec<Seal>,
}

/// Computes the history for the next step of `answer`. Notes are told in the first step only: a later one
/// would have to put them before a user message that was already sent.
pub(super) fn project(transcript: &Transcript, answer: MessageId, first_step: bool, origin: &str) -> History {
    let mut projection = Projection { transcript, origin, history: History::default() };
    let asked = transcript.questions.get(&answer).copied();
    for message in transcript.standing() {
        match &message.body {
            Body::User(text) => {
                projection.sent_notes(message.id);
                if first_step && asked == Some(message.id) {
                    projection.new_notes();
                }
                projection.history.messages.push(ModelMessage::User(quoted(text)));
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

struct Projection<'a> {
    transcript: &'a Transcript,
    origin: &'a str,
    history: History,
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
        let mut calls = Vec::with_capacity(step.calls.len());
        let mut answers = Vec::with_capacity(step.calls.len());
        for call in &step.calls {
            let (kind, sent_texts) = self.answer(call);
            // What was shown with a placeholder stays as it was shown; the note tells of the edit.
            let input = match kind {
                SealKind::Placeholder => &call.input,
                SealKind::Answer | SealKind::Note => call.effective_input(),
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

    /// The one answer of a call: what was told first, else what there is to tell now.
    fn answer(&mut self, call: &ToolCall) -> (SealKind, String) {
        if let Some(first) = self.transcript.texts_of(call.id).first() {
            return (first.kind, first.text.clone());
        }
        let (kind, text) = match call.end() {
            Some(end) => (SealKind::Answer, end.result.clone()),
            None => (SealKind::Placeholder, call.placeholder().to_owned()),
        };
        self.history.seals.push(Seal { tool_call_id: call.id, n: 0, kind, text: text.clone() });
        (kind, text)
    }

    /// Notes that were told before this user message, in the order in which they were told.
    fn sent_notes(&mut self, question: MessageId) {
        let mut notes = Vec::new();
        for (place, message) in self.transcript.messages.iter().enumerate() {
            if self.transcript.questions.get(&message.id) != Some(&question) {
                continue;
            }
            for (call, sent) in self.transcript.sent.iter() {
                let sent_there = sent.iter().filter(|sent| sent.message_id == message.id);
                let sent_there = sent_there.filter(|sent| sent.kind == SealKind::Note);
                notes.extend(sent_there.map(|sent| (place, *call, sent.text.clone())));
            }
        }
        notes.sort();
        self.history.messages.extend(notes.into_iter().map(|(_, _, text)| ModelMessage::User(text)));
    }

    /// Outcomes that the model was told otherwise, or not at all because their message was cut off.
    fn new_notes(&mut self) {
        let standing: HashSet<MessageId> = self.transcript.standing().map(|message| message.id).collect();
        let mut due = Vec::new();
        for message in &self.transcript.messages {
            let cut_off = message.status == MessageStatus::Superseded;
            due.extend(message.calls().filter_map(|call| self.due_note(call, cut_off, &standing)));
        }
        due.sort_by_key(|(id, _)| *id);
        for (tool_call_id, text) in due {
            let n = i32::try_from(self.transcript.texts_of(tool_call_id).len()).unwrap_or(i32::MAX);
            self.history.seals.push(Seal { tool_call_id, n, kind: SealKind::Note, text: text.clone() });
            self.history.messages.push(ModelMessage::User(text));
        }
    }

    fn due_note(
        &self,
        call: &ToolCall,
        cut_off: bool,
        standing: &HashSet<MessageId>,
    ) -> Option<(ToolCallId, String)> {
        let end = call.end()?;
        let outcome = quoted(&format!("{}, call {}: {}", call.name, call.wire_call_id, end.result));
        let note = format!("{} {outcome}", model_texts::NOTE);
        let sent_texts = self.transcript.texts_of(call.id);
        let stands = |sent: &Sent| {
            let question = self.transcript.questions.get(&sent.message_id);
            question.is_some_and(|question| standing.contains(question))
        };
        if cut_off {
            // What the branch that was cut off knew, this one does not; only an effect is worth telling.
            call.execution()?;
            let known = sent_texts.iter().any(|sent| sent.text == note && stands(sent));
            return (!known).then_some((call.id, note));
        }
        // A note before a message that was cut off is not told any more.
        let last = sent_texts.iter().rfind(|sent| sent.kind != SealKind::Note || stands(sent))?;
        (last.text != end.result && last.text != note).then_some((call.id, note))
    }
}

/// Words of somebody else's in a user message, in which nothing begins as a note does.
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
