//! The states that calls reach in a transaction. They are counted and logged after the commit, when they are
//! durable.

use super::Store;
use super::words::Word;
use crate::domain::call::StateKind;
use crate::domain::event::EventType;
use crate::domain::id::{RunId, ThreadId, ToolCallId};
use crate::metrics::Metrics;
use serde_json::Value;
use std::future::pending;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// A state that a call reaches.
#[derive(Debug)]
pub(super) struct Reached {
    tool: String,
    state: StateKind,
    line: &'static str,
    actor: String,
    call: CallIds,
}

/// The ids of a call, its run and its thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallIds {
    pub(super) tool_call_id: ToolCallId,
    pub(super) run_id: RunId,
    pub(super) thread_id: ThreadId,
}

/// The number of approved calls that a waiter may lag by. A waiter that lags further looks at the rows.
const CAPACITY: usize = 64;

/// Broadcasts the tools whose calls a commit of this process has approved.
#[derive(Debug, Clone)]
pub(super) struct ApprovedCalls(broadcast::Sender<String>);

/// The end of [`ApprovedCalls`] at one waiter.
#[derive(Debug)]
pub(crate) struct ApprovedSignal(broadcast::Receiver<String>);

impl Default for ApprovedCalls {
    fn default() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }
}

impl ApprovedCalls {
    /// Called after the commit that brought the call into its state.
    pub(super) fn notify(&self, reached: &Reached) {
        if reached.state == StateKind::Approved {
            // Without waiters the signal has no receiver.
            let _waiters = self.0.send(reached.tool.clone());
        }
    }
}

impl ApprovedSignal {
    /// Completes if a call of one of these tools was approved since the last completion, otherwise with the next
    /// approval.
    pub(crate) async fn approved(&mut self, tools: &[String]) {
        loop {
            match self.0.recv().await {
                Ok(tool) if !tools.contains(&tool) => {}
                Ok(_) | Err(RecvError::Lagged(_)) => return,
                // No sender is left.
                Err(RecvError::Closed) => pending().await,
            }
        }
    }
}

impl Store {
    /// Returns the signal of the approved calls of this process, from now on. A waiter that takes it before its
    /// first look misses no approval of this process.
    pub(crate) fn approved_signal(&self) -> ApprovedSignal {
        ApprovedSignal(self.approved.0.subscribe())
    }
}

impl Reached {
    /// Returns the state that a call reaches by this event, if any.
    pub(super) fn by(event: EventType, actor: &str, call: CallIds, data: &Value) -> Option<Self> {
        let (state, line) = state_reached(event, actor, data)?;
        let tool = data.get("tool_name").and_then(Value::as_str)?;
        Some(Self { tool: tool.to_owned(), state, line, actor: actor.to_owned(), call })
    }

    /// Counts the state, and writes a line of the log: ids, tool and actor, never arguments.
    pub(super) fn report(&self, metrics: &Metrics) {
        let Self { tool, state, line, actor, call: CallIds { tool_call_id, run_id, thread_id } } = self;
        let state = state.name();
        metrics.call_reached(tool, state);
        tracing::info!(%tool_call_id, %run_id, %thread_id, tool, state, actor, "{line}");
    }
}

/// Returns the state that a call reaches by an event, and the line of the log.
fn state_reached(event: EventType, actor: &str, data: &Value) -> Option<(StateKind, &'static str)> {
    const HELD: &str = "a call is held";
    const DECIDED: &str = "a call is decided";
    const STARTED: &str = "a call has started";
    const ENDED: &str = "a call has ended";
    let is_approved = || data.get("state").is_some_and(|state| state == StateKind::Approved.word());
    if event == EventType::ToolInterrupted && is_approved() {
        // An idempotent call, which the next claim starts again.
        return Some((StateKind::Approved, "a call was cut off and will start again"));
    }
    let line = match event {
        EventType::ToolRequiresApproval => HELD,
        EventType::ToolStarted => STARTED,
        EventType::ToolSucceeded | EventType::ToolFailed | EventType::ToolInterrupted => ENDED,
        _ => DECIDED,
    };
    Some((event.state_reached(actor)?, line))
}
