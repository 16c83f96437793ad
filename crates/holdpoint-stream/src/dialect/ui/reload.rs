//! Messages in the form of the SDK: the `messages` of `Chat`, with their cards.
//!
//! The form is that of `ai` 5.0, 6.0 and 7.0 (`UIMessage`), folded like its client (`processUIMessageStream`)
//! folds the streams of the message.

use super::UiVersion;
use super::parts::{Metadata, Readable, Validation};
use crate::Cards;
use crate::hold_parts::{stored_decisions, stored_holds};
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::message::{Body, File, Message, MessageStatus, Part, Source, Step, StepStatus, Usage};
use holdpoint_core::turn::{Refusal, RenderedResult};
use serde_json::{Map, Value, json};

/// Returns one message in this form. `None` for a message that a turn is writing, because an attached stream
/// emits such a message from its first part. `None` also if the model has emitted nothing yet.
pub(super) fn reload(message: &Message, version: &UiVersion, cards: &dyn Cards) -> Option<Value> {
    match &message.body {
        Body::User(text) => Some(json!({
            "id": message.client_id.clone().unwrap_or_else(|| message.id.to_string()),
            "role": "user",
            "parts": [{ "type": "text", "text": text }],
        })),
        Body::Assistant(steps) => {
            if message.status == MessageStatus::Streaming {
                return None;
            }
            let shown: Vec<_> = steps.iter().flat_map(|step| shown(step, version, cards)).collect();
            if shown.is_empty() {
                return None;
            }
            let mut whole = json!({ "id": message.id, "role": "assistant", "parts": shown });
            let spent = steps.iter().filter_map(|step| step.usage).reduce(Usage::plus);
            if let (Some(spent), Some(fields)) = (spent, whole.as_object_mut()) {
                fields.insert("metadata".to_owned(), json!(Metadata::of(spent)));
            }
            Some(whole)
        }
    }
}

/// Returns the parts of a step. A step that broke off before its first part has none, as in the clients.
fn shown(step: &Step, version: &UiVersion, cards: &dyn Cards) -> Vec<Value> {
    let mut parts = vec![json!({ "type": "step-start" })];
    parts.extend(step.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(json!({ "type": "text", "text": text, "state": "done" })),
        Part::Reasoning { text } => Some(json!({ "type": "reasoning", "text": text, "state": "done" })),
        Part::Source(Source { url, title }) => {
            let mut part = json!({ "type": "source-url", "sourceId": url, "url": url });
            if let (Some(title), Some(fields)) = (title, part.as_object_mut()) {
                fields.insert("title".to_owned(), json!(title));
            }
            Some(part)
        }
        Part::File(File { url, media_type }) => {
            Some(json!({ "type": "file", "mediaType": media_type, "url": url }))
        }
        Part::ToolCall { tool_call_id } => {
            step.calls.iter().find(|call| call.id == *tool_call_id).map(|call| tool(call, version))
        }
    }));
    parts.extend(stored_holds(&step.calls, cards));
    if !version.has_approvals() {
        parts.extend(step.calls.iter().filter(|call| call.held).map(|call| {
            let data = Validation { tool_call_id: call.id, validated: call.state.label().word() };
            json!({ "type": "data-tool-validation", "id": call.id, "data": data })
        }));
    }
    parts.extend(stored_decisions(&step.calls));
    if parts.len() == 1 && step.status != StepStatus::Complete {
        parts.clear();
    }
    parts
}

fn tool(call: &ToolCall, version: &UiVersion) -> Value {
    let mut part = Map::new();
    let mut set = |name: &str, value: Value| part.insert(name.to_owned(), value);
    set("type", json!(format!("tool-{}", call.name)));
    set("toolCallId", json!(call.id));
    set("input", json!(Readable::Input(&call.shown_input())));
    let shows_approval = call.held && version.has_approvals();
    let (state, shown) = match RenderedResult::of(call) {
        Some(RenderedResult::Output(output)) => {
            ("output-available", Some(("output", json!(Readable::Output(&output)))))
        }
        Some(RenderedResult::Refused(..)) if shows_approval => ("output-denied", None),
        Some(RenderedResult::Error(text) | RenderedResult::Refused(_, text)) => {
            ("output-error", Some(("errorText", json!(text))))
        }
        None if shows_approval && call.state == State::Pending => ("approval-requested", None),
        None if shows_approval => ("approval-responded", None),
        None => ("input-available", None),
    };
    set("state", json!(state));
    if let Some((name, value)) = shown {
        set(name, value);
    }
    if shows_approval {
        set("approval", approval(call));
    }
    Value::Object(part)
}

/// Returns the approval of a held call: the request and the decision.
fn approval(call: &ToolCall) -> Value {
    let reason = match RenderedResult::of(call) {
        Some(RenderedResult::Refused(Refusal::Rejected, _)) => {
            call.decision.as_ref().and_then(|decision| decision.reason.as_deref())
        }
        Some(RenderedResult::Refused(refusal, _)) => Some(refusal.word()),
        _ => None,
    };
    let mut approval = Map::new();
    approval.insert("id".to_owned(), json!(call.id));
    if let Some(approved) = call.validated() {
        approval.insert("approved".to_owned(), json!(approved));
    }
    if let Some(reason) = reason {
        approval.insert("reason".to_owned(), json!(reason));
    }
    Value::Object(approval)
}
