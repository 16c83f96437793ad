//! The states that calls reach in a transaction. They are counted and logged after the commit, when they are
//! durable.

use crate::Store;
use crate::event::new_event::{NewEvent, Subject};
use holdpoint_core::call::StateKind;
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::{RunId, ThreadId, ToolCallId};
use holdpoint_metrics::Metrics;
use std::future::pending;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// A state that a call reaches.
#[derive(Debug)]
pub(crate) struct ReachedState {
    tenant_id: String,
    tool: String,
    state: StateKind,
    line: &'static str,
    actor: String,
    call: CallIds,
}

/// The ids of a call, its run and its thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallIds {
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) run_id: RunId,
    pub(crate) thread_id: ThreadId,
}

/// The number of approved calls that the listener may lag by.
const CAPACITY: usize = 64;

/// A call that a commit of this process has approved.
#[derive(Debug, Clone)]
pub struct ApprovedCall {
    pub tenant_id: String,
    pub tool: String,
    pub call: ToolCallId,
}

/// Broadcasts the calls that a commit of this process has approved.
#[derive(Debug, Clone)]
pub(crate) struct ApprovedCalls(broadcast::Sender<ApprovedCall>);

/// The end of [`ApprovedCalls`] at the listener.
#[derive(Debug)]
pub struct ApprovedSignal(broadcast::Receiver<ApprovedCall>);

impl Default for ApprovedCalls {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl ApprovedCalls {
    /// Called after the commit that brought the call into its state.
    pub(crate) fn notify(&self, reached: &ReachedState) {
        if reached.state == StateKind::Approved {
            let ReachedState { tenant_id, tool, call, .. } = reached;
            let (tenant_id, tool) = (tenant_id.clone(), tool.clone());
            // A process that claims nothing does not listen.
            let _listeners = self.0.send(ApprovedCall { tenant_id, tool, call: call.tool_call_id });
        }
    }
}

impl ApprovedSignal {
    /// Returns the next approved call, or `None` if the listener was too slow and has missed some.
    pub async fn next(&mut self) -> Option<ApprovedCall> {
        match self.0.recv().await {
            Ok(approved) => Some(approved),
            Err(RecvError::Lagged(_)) => None,
            // No sender is left.
            Err(RecvError::Closed) => pending().await,
        }
    }
}

impl Store {
    /// Returns the signal of the approved calls of this process, from now on.
    pub fn approved_signal(&self) -> ApprovedSignal {
        ApprovedSignal(self.approved.0.subscribe())
    }
}

impl ReachedState {
    /// Returns the state that a call reaches by this event, if any.
    pub(crate) fn of(new: &NewEvent<'_>) -> Option<Self> {
        let NewEvent { actor, subject: Subject { thread, run_id, call }, .. } = new;
        let call = call.as_ref()?;
        let (state, line) = state_reached(new)?;
        let ids = CallIds { tool_call_id: call.id, run_id: *run_id, thread_id: thread.id };
        let (tenant_id, tool, actor) = (thread.tenant_id.clone(), call.tool.to_owned(), (*actor).to_owned());
        Some(Self { tenant_id, tool, state, line, actor, call: ids })
    }

    /// Counts the state, and writes a line of the log: ids, tool and actor, never arguments.
    pub(crate) fn report(&self, metrics: &Metrics) {
        let Self { tool, state, line, actor, call: CallIds { tool_call_id, run_id, thread_id }, .. } = self;
        metrics.call_reached(tool, *state);
        tracing::info!(%tool_call_id, %run_id, %thread_id, tool, state = state.word(), actor, "{line}");
    }
}

/// Returns the state that a call reaches by an event, and the line of the log.
fn state_reached(
    NewEvent { event_type, actor, data, .. }: &NewEvent<'_>,
) -> Option<(StateKind, &'static str)> {
    const HELD: &str = "a call is held";
    const DECIDED: &str = "a call is decided";
    const STARTED: &str = "a call has started";
    const ENDED: &str = "a call has ended";
    if let (EventType::ToolInterrupted, EventData::Moved { state: StateKind::Approved, .. }) =
        (event_type, data)
    {
        // An idempotent call, which the next claim starts again.
        return Some((StateKind::Approved, "a call was cut off and will start again"));
    }
    let line = match event_type {
        EventType::ToolRequiresApproval => HELD,
        EventType::ToolStarted => STARTED,
        EventType::ToolSucceeded | EventType::ToolFailed | EventType::ToolInterrupted => ENDED,
        _ => DECIDED,
    };
    Some((event_type.state_reached(actor)?, line))
}
