//! Events on the wire.

use super::body::JsonObject;
use super::decision_view;
use crate::domain::call::{ToolCall, input_hash};
use crate::domain::event::{Event, EventType};
use bytes::{BufMut, BytesMut};
use poem_openapi::Object;
use poem_openapi::types::ToJSON;
use serde_json::{Map, Value, json};

/// An event.
#[derive(Debug, Object)]
#[oai(rename = "Event", skip_serializing_if_is_none)]
pub(super) struct EventView {
    /// The position among all events. Positions only grow, with gaps for events that the caller may not see.
    seq: i64,
    /// The type of the event, in the past tense.
    #[oai(rename = "type")]
    event_type: String,
    at: String,
    /// The actor: `user:<sub>`, `system:policy` and others.
    actor: String,
    session_id: String,
    thread_id: String,
    run_id: Option<String>,
    tool_call_id: Option<String>,
    /// For an event of a call: `tool_name`, `tool_call_id`, `args` if readable, `risk_level`, `input_hash`,
    /// and `reason` and `expires_at` if the call has them; from the decision on also `decision`, and at the
    /// end of the call also `state`.
    data: JsonObject,
}

impl EventView {
    pub(super) fn of(event: &Event) -> Self {
        Self {
            seq: event.seq,
            event_type: word(event),
            at: event.at.to_rfc3339(),
            actor: event.actor.clone(),
            session_id: event.session_id.clone(),
            thread_id: event.thread_id.clone(),
            run_id: event.run_id.clone(),
            tool_call_id: event.tool_call_id.clone(),
            data: JsonObject(data(event)),
        }
    }
}

/// Returns the type of an event. A type that this version does not know is passed through if it is a single
/// word, because the type has a line of its own in an event stream.
fn word(event: &Event) -> String {
    match &event.event_type {
        Ok(known) => known.name().to_owned(),
        Err(word) if word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_')) => {
            word.clone()
        }
        Err(_) => "unknown".to_owned(),
    }
}

/// Returns the stored data of an event, completed with data of its call.
fn data(event: &Event) -> Map<String, Value> {
    let mut data = event.data.clone();
    let Some(call) = &event.call else { return data };
    // These facts are part of `decision`.
    for word in ["decision", "edited", "surface"] {
        data.remove(word);
    }
    let event_type = event.event_type.as_ref().ok().copied();
    let args = if is_before_decision(event_type) { &call.input } else { call.effective_input() };
    let args = (!call.unreadable).then_some(args);
    let known = [
        ("tool_name", Some(json!(call.name))),
        ("tool_call_id", Some(json!(call.id))),
        ("args", args.map(|args| json!(args))),
        ("risk_level", Some(json!(call.risk.name()))),
        ("reason", call.reason.as_ref().map(|reason| json!(reason))),
        ("expires_at", call.expires_at.map(|at| json!(at.to_rfc3339()))),
        ("decision", decision(event, call)),
        ("state", event_type.and_then(state).map(|state| json!(state))),
        ("input_hash", args.map(|args| json!(input_hash(&call.name, args, &call.schema_hash)))),
    ];
    for (name, value) in known {
        if let Some(value) = value {
            // Data that was stored with the event takes precedence.
            data.entry(name).or_insert(value);
        }
    }
    data
}

const fn is_before_decision(event: Option<EventType>) -> bool {
    matches!(event, Some(EventType::ToolCalled | EventType::ToolRequiresApproval))
}

/// Returns the decision of the call if it was in force at the time of the event.
fn decision(event: &Event, call: &ToolCall) -> Option<Value> {
    let decision = call.decision.as_ref()?;
    let in_force = decision.at <= event.at && !is_before_decision(event.event_type.as_ref().ok().copied());
    in_force.then(|| decision_view::decision(decision))
}

/// Returns the final state of a call for an event that ended the call, if the row does not contain it.
const fn state(event: EventType) -> Option<&'static str> {
    Some(match event {
        EventType::ToolRejected | EventType::ToolBlocked => "rejected",
        EventType::ToolExpired => "expired",
        EventType::ToolCancelled => "cancelled",
        EventType::ToolSucceeded => "succeeded",
        // Only the row of a call that could not run at all lacks the state.
        EventType::ToolFailed => "invalid",
        EventType::ToolInterrupted => "interrupted",
        _ => return None,
    })
}

/// Writes the event as a Server-Sent Event.
pub(super) fn write_frame(event: &Event, out: &mut BytesMut) {
    let view = EventView::of(event);
    let frame = format!("id: {}\nevent: {}\ndata: {}\n\n", view.seq, view.event_type, view.to_json_string());
    out.put_slice(frame.as_bytes());
}
