//! Events on the wire.

use crate::http::approvals::decision_view;
use crate::http::body::formats::{Id, Text, Time};
use crate::http::body::strict::JsonObject;
use crate::http::body::word::Word;
use crate::http::routes::call::{PreviewView, ProgressView};
use bytes::{BufMut, BytesMut};
use holdpoint_core::call::{StateKind, ToolCall};
use holdpoint_core::event::{Event, EventType};
use poem_openapi::Object;
use poem_openapi::types::ToJSON;
use serde_json::{Map, Value, json};

/// A change of a thread, a run or a tool call, recorded with the change itself.
#[derive(Debug, Object)]
#[oai(rename = "Event", skip_serializing_if_is_none)]
pub(in crate::http) struct EventView {
    /// The position among all events. Positions only grow, with gaps for events that the caller may not see.
    seq: i64,
    #[oai(rename = "type")]
    event_type: Text<Word<EventType>>,
    /// When the change was committed.
    at: Time,
    /// The actor: `user:<sub>`, `system:policy` and others.
    actor: String,
    /// The session of the thread.
    session_id: Id,
    /// The thread in which the change happened.
    thread_id: Id,
    /// The run that changed, or the run of the call.
    run_id: Option<Id>,
    /// The call that changed. Absent for an event of a run.
    tool_call_id: Option<Id>,
    /// For an event of a call: `tool_name`, `tool_call_id`, `args` if readable (with `•••` in place of each secret), `risk_level`, `input_hash`,
    /// and `reason`, `expires_at` and the `preview` of `args` if the call has them; from the decision on also `decision`, and at the
    /// end of the call also `state`. `tool.progressed` and the end of a call that reported progress: also the last `progress`.
    data: JsonObject,
}

impl EventView {
    pub(in crate::http) fn of(event: &Event) -> Self {
        Self {
            seq: event.seq,
            event_type: event_type(event),
            at: event.at.into(),
            actor: event.actor.clone(),
            session_id: event.session_id.clone().into(),
            thread_id: event.thread_id.clone().into(),
            run_id: event.run_id.clone().map(Id::from),
            tool_call_id: event.tool_call_id.clone().map(Id::from),
            data: JsonObject(data(event)),
        }
    }
}

/// Returns the type of an event. A type that this version does not know is passed through if it is a single
/// word, because the type has a line of its own in an event stream.
fn event_type(event: &Event) -> Text<Word<EventType>> {
    let is_word_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
    match &event.event_type {
        Ok(known) => known.word().to_owned().into(),
        Err(other) if other.chars().all(is_word_char) => other.clone().into(),
        Err(_) => "unknown".to_owned().into(),
    }
}

/// Returns the stored data of an event, completed with data of its call.
fn data(event: &Event) -> Map<String, Value> {
    let mut data = event.data.clone();
    let Some(call) = &event.call else { return data };
    // These facts are part of `decision`.
    for word in ["decision", "edited", "surface", "on_behalf_of"] {
        data.remove(word);
    }
    let (args, preview, hash) = if is_before_decision(event) {
        (call.shown_proposal(), call.preview.as_ref(), call.proposed_hash(&call.schema_hash))
    } else {
        let args = call.shown_edit().unwrap_or_else(|| call.shown_proposal());
        (args, call.effective_preview(), call.effective_hash(&call.schema_hash))
    };
    let args = (!call.unreadable).then_some(args);
    let known = [
        ("tool_name", Some(json!(call.name))),
        ("tool_call_id", Some(json!(call.id))),
        ("args", args.as_ref().map(|args| json!(args))),
        ("preview", preview.and_then(|preview| PreviewView::of(preview).to_json())),
        ("risk_level", Some(json!(call.risk.word()))),
        ("reason", call.reason.as_ref().map(|reason| json!(reason))),
        ("expires_at", call.expires_at.map(|at| json!(at.to_rfc3339()))),
        ("decision", decision(event, call)),
        ("progress", progress(event, call)),
        ("state", final_state(event).map(|state| json!(state.word()))),
        ("input_hash", args.as_ref().map(|_| json!(hash))),
    ];
    for (name, value) in known {
        if let Some(value) = value {
            // Data that was stored with the event takes precedence.
            data.entry(name).or_insert(value);
        }
    }
    data
}

fn is_before_decision(event: &Event) -> bool {
    matches!(
        event.event_type,
        Ok(EventType::ToolCalled
            | EventType::ToolRequiresApproval
            | EventType::ToolVoted
            | EventType::ToolInputsRevealed)
    )
}

/// Returns the decision of the call if it was in force at the time of the event.
fn decision(event: &Event, call: &ToolCall) -> Option<Value> {
    let decision = call.decision.as_ref()?;
    let in_force = decision.at <= event.at && !is_before_decision(event);
    in_force.then(|| decision_view::decision(decision))
}

/// Returns the last report of progress of the call, for an event about it or about the end of the execution.
fn progress(event: &Event, call: &ToolCall) -> Option<Value> {
    use EventType::{ToolFailed, ToolInterrupted, ToolProgressed, ToolSucceeded};
    let is_about =
        matches!(event.event_type, Ok(ToolProgressed | ToolSucceeded | ToolFailed | ToolInterrupted));
    call.progress.as_ref().filter(|_| is_about).and_then(|reported| ProgressView::of(reported).to_json())
}

/// Returns the final state of the call if the event ended the call.
fn final_state(event: &Event) -> Option<StateKind> {
    match event.event_type.as_ref().ok()? {
        EventType::ToolRequiresApproval | EventType::ToolApproved | EventType::ToolStarted => None,
        ending => ending.state_reached(&event.actor),
    }
}

/// Returns the event as readers get it.
pub(crate) fn public_form(event: &Event) -> Map<String, Value> {
    match EventView::of(event).to_json() {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

/// Writes the event as a Server-Sent Event.
pub(in crate::http) fn write_frame(event: &Event, out: &mut BytesMut) {
    let view = EventView::of(event);
    let (seq, event_type) = (view.seq, &*view.event_type);
    let frame = format!("id: {seq}\nevent: {event_type}\ndata: {}\n\n", view.to_json_string());
    out.put_slice(frame.as_bytes());
}
