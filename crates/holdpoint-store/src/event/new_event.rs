//! What an event of a transaction is about.

use crate::Thread;
use holdpoint_core::call::ToolCall;
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::{RunId, ToolCallId};

pub(crate) struct Subject<'a> {
    pub(crate) thread: &'a Thread,
    pub(crate) run_id: RunId,
    pub(crate) call: Option<OfCall<'a>>,
}

pub(crate) struct OfCall<'a> {
    pub(crate) id: ToolCallId,
    pub(crate) tool: &'a str,
    pub(crate) is_held: bool,
}

impl<'a> Subject<'a> {
    pub(crate) fn run(thread: &'a Thread, run_id: RunId) -> Self {
        Self { thread, run_id, call: None }
    }

    pub(crate) fn call(thread: &'a Thread, call: &'a ToolCall) -> Self {
        let call_subject = OfCall { id: call.id, tool: &call.name, is_held: call.held };
        Self { thread, run_id: call.run_id, call: Some(call_subject) }
    }

    /// Returns the tool of the call, if the call is held.
    pub(crate) fn held_tool(&self) -> Option<&'a str> {
        self.call.as_ref().filter(|call| call.is_held).map(|call| call.tool)
    }
}

/// An event that a transaction adds.
pub(crate) struct NewEvent<'a> {
    pub(crate) event_type: EventType,
    pub(crate) actor: &'a str,
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) data: EventData,
}
