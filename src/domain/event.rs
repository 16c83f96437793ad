//! Events: records of changes, in the past tense, written in the transaction of the change and never altered.

use super::call::ToolCall;
use super::clock::Timestamp;
use serde_json::{Map, Value};

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident $word:literal,)+) => {
        /// The types of events.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum EventType {
            $($(#[$doc])* $name,)+
        }

        impl EventType {
            /// The names of all event types.
            pub(crate) const WORDS: &[&str] = &[$($word),+];

            /// Returns the name of the type in the documentation, for people, logs and metrics.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

event_types! {
    /// The model made a call.
    ToolCalled "tool.called",
    /// The call was held for an approval.
    ToolRequiresApproval "tool.requires_approval",
    /// The policy forbids the call. There was no approval.
    ToolBlocked "tool.blocked",
    /// The call was approved.
    ToolApproved "tool.approved",
    /// The call was rejected.
    ToolRejected "tool.rejected",
    /// No decision arrived in time.
    ToolExpired "tool.expired",
    /// The call was withdrawn and did not run.
    ToolCancelled "tool.cancelled",
    /// An execution was claimed.
    ToolStarted "tool.started",
    /// The call ran and returned an output.
    ToolSucceeded "tool.succeeded",
    /// The call ran and failed, or could not run.
    ToolFailed "tool.failed",
    /// The outcome of the call is unknown.
    ToolInterrupted "tool.interrupted",
    /// A run started.
    RunStarted "run.started",
    /// The run waits for held or delegated calls.
    RunWaiting "run.waiting",
    /// The run resumed.
    RunResumed "run.resumed",
    /// The run gave its final answer, or the user sent a later message.
    RunCompleted "run.completed",
    /// The run failed.
    RunFailed "run.failed",
    /// The run was cancelled.
    RunCancelled "run.cancelled",
}

/// An event as stored, with the current state of its call. Ids are the stored texts, so that an event with
/// unreadable ids is delivered too.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// The position among all events. Each position is unique. A reader that has read one event never finds a
    /// lower one later.
    pub(crate) seq: i64,
    /// The type. For a type that this version does not know: the stored text.
    pub(crate) event_type: Result<EventType, String>,
    /// The time of the change.
    pub(crate) at: Timestamp,
    /// The actor.
    pub(crate) actor: String,
    /// The root thread of the session.
    pub(crate) session_id: String,
    /// The thread.
    pub(crate) thread_id: String,
    /// The run.
    pub(crate) run_id: Option<String>,
    /// The recorded facts: hashes, never inputs or results.
    pub(crate) data: Map<String, Value>,
    /// The id of the call that the event is about.
    pub(crate) tool_call_id: Option<String>,
    /// The call, if it can be read.
    pub(crate) call: Option<ToolCall>,
}

/// The actors of the server itself, in events and decisions.
pub(crate) mod system {
    /// The policy let a call run, or forbade it.
    pub(crate) const POLICY: &str = "system:policy";
    /// A deadline passed.
    pub(crate) const EXPIRY: &str = "system:expiry";
    /// The sweeper closed the work of a lost process.
    pub(crate) const SWEEPER: &str = "system:sweeper";
    /// The model made a call that cannot run.
    pub(crate) const INVALID: &str = "system:invalid";
    /// The model repeated a pending call.
    pub(crate) const DUPLICATE: &str = "system:duplicate";
}
