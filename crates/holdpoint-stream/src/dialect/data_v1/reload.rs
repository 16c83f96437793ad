//! Messages in the form of AI SDK 4: the `initialMessages` of `useChat`, with their cards.
//!
//! The form is that of `@ai-sdk/ui-utils` 1.2 (`UIMessage`), folded like its client (`processChatResponse`)
//! folds the `data-v1` streams of the message.

use super::encoder::{SourcePlace, result};
use crate::Cards;
use crate::hold_parts::{stored_decisions, stored_holds};
use holdpoint_core::call::ToolCall;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::message::{Body, Message, Part, Step, StepStatus};
use holdpoint_core::turn::RenderedResult;
use serde_json::{Map, Value, json};

/// Returns one message in this form. For a message that a turn is writing, the result holds the content from
/// before that turn: a page appends the turn to it. `None` if the model has emitted nothing yet; clients hold
/// no such message.
pub(super) fn reload(message: &Message, turn_began: Option<Timestamp>, cards: &dyn Cards) -> Option<Value> {
    let created_at = message.created_at.to_rfc3339();
    match &message.body {
        Body::User(text) => Some(json!({
            "id": message.client_id.clone().unwrap_or_else(|| message.id.to_string()),
            "role": "user",
            "content": text,
            "createdAt": created_at,
            "parts": [{ "type": "text", "text": text }],
        })),
        Body::Assistant(steps) => {
            let mut folded = FoldedStep::default();
            for step in steps.iter().filter(|step| turn_began.is_none_or(|began| step.created_at < began)) {
                folded.step(step);
                folded.data.extend(stored_holds(&step.calls, cards));
                folded.data.extend(stored_decisions(&step.calls));
            }
            if folded.parts.is_empty() {
                return None;
            }
            let mut whole = json!({
                "id": message.id,
                "role": "assistant",
                "content": folded.content,
                "createdAt": created_at,
                "parts": folded.parts,
            });
            if let Some(fields) = whole.as_object_mut() {
                folded.optional(fields);
            }
            Some(whole)
        }
    }
}

#[derive(Default)]
struct FoldedStep {
    content: String,
    reasoning: Option<String>,
    parts: Vec<Value>,
    invocations: Vec<Value>,
    annotations: Vec<Value>,
    /// The data parts of the lines `2:`, which a live page has beside its messages.
    data: Vec<Value>,
    /// The highest number of a step with an invocation.
    highest: i32,
    /// Whether the last whole step held calls. A continuation after such a step starts with the end of a step
    /// of its own.
    held: bool,
}

/// A part of a step that is being folded.
enum OpenPart {
    Text(String),
    Reasoning(String),
    Invocation(Value),
    /// A part that does not change any more.
    Whole(Value),
}

impl FoldedStep {
    fn step(&mut self, step: &Step) {
        // The client counts on from its highest number, and adds one for each `e:` line.
        let number = if self.parts.is_empty() { 0 } else { 1 + self.highest + i32::from(self.held) };
        if step.status == StepStatus::Complete {
            self.held = step.calls.iter().any(|call| call.held);
        }
        let mut open = Vec::new();
        for part in &step.parts {
            match part {
                Part::Text { text } => {
                    self.content.push_str(text);
                    append(&mut open, text, OpenPart::Text, OpenPart::as_text);
                }
                Part::Reasoning { text } => {
                    self.reasoning.get_or_insert_default().push_str(text);
                    append(&mut open, text, OpenPart::Reasoning, OpenPart::as_reasoning);
                }
                Part::Source(source) => {
                    let source = SourcePlace::new(source);
                    open.push(OpenPart::Whole(json!({ "type": "source", "source": source })));
                }
                Part::File(file) => {
                    let (data, media_type) = (file.base64(), &file.media_type);
                    open.push(OpenPart::Whole(
                        json!({ "type": "file", "mimeType": media_type, "data": data }),
                    ));
                }
                Part::ToolCall { tool_call_id } => {
                    if let Some(call) = step.calls.iter().find(|call| call.id == *tool_call_id) {
                        open.push(OpenPart::Invocation(self.call(call, number)));
                    }
                }
            }
        }
        self.parts.push(json!({ "type": "step-start" }));
        self.parts.extend(open.into_iter().map(OpenPart::into_part));
    }

    fn call(&mut self, call: &ToolCall, step: i32) -> Value {
        let mut invocation = json!({
            "state": "call",
            "step": step,
            "toolCallId": call.id,
            "toolName": call.name,
            "args": call.shown_input(),
        });
        if let (Some(shown), Some(fields)) = (RenderedResult::of(call), invocation.as_object_mut()) {
            fields.insert("state".to_owned(), json!("result"));
            fields.insert("result".to_owned(), result(shown));
        }
        if call.held {
            let label = call.state.label().word();
            self.annotations.push(json!({ "toolCallId": call.id, "validated": label }));
        }
        self.highest = step;
        self.invocations.push(invocation.clone());
        invocation
    }

    /// Adds the fields that a client has only if they are not empty.
    fn optional(self, fields: &mut Map<String, Value>) {
        if let Some(reasoning) = self.reasoning {
            fields.insert("reasoning".to_owned(), json!(reasoning));
        }
        if !self.invocations.is_empty() {
            fields.insert("toolInvocations".to_owned(), json!(self.invocations));
        }
        if !self.annotations.is_empty() {
            fields.insert("annotations".to_owned(), json!(self.annotations));
        }
        if !self.data.is_empty() {
            fields.insert("data".to_owned(), json!(self.data));
        }
    }
}

/// Appends a delta. A step has one part for all its text and one for all its reasoning, wherever its calls
/// are in between.
fn append(
    open: &mut Vec<OpenPart>,
    text: &str,
    new: fn(String) -> OpenPart,
    find: fn(&mut OpenPart) -> Option<&mut String>,
) {
    match open.iter_mut().find_map(find) {
        Some(started) => started.push_str(text),
        None => open.push(new(text.to_owned())),
    }
}

impl OpenPart {
    fn as_text(&mut self) -> Option<&mut String> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn as_reasoning(&mut self) -> Option<&mut String> {
        if let Self::Reasoning(text) = self { Some(text) } else { None }
    }

    fn into_part(self) -> Value {
        match self {
            Self::Text(text) => json!({ "type": "text", "text": text }),
            Self::Reasoning(text) => {
                let details = json!([{ "type": "text", "text": text }]);
                json!({ "type": "reasoning", "reasoning": text, "details": details })
            }
            Self::Invocation(invocation) => {
                json!({ "type": "tool-invocation", "toolInvocation": invocation })
            }
            Self::Whole(part) => part,
        }
    }
}
