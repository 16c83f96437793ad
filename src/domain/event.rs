//! Events: what happened, in the past tense, written with the change itself and never altered.

use super::call::ToolCall;
use super::clock::Timestamp;
use serde_json::{Map, Value};

macro_rules! event_types {
    ($($(#[$doc:meta])* $name:ident $word:literal,)+) => {
        /// The kinds of event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum EventType {
            $($(#[$doc])* $name,)+
        }

        impl EventType {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$name),+];
            /// Their names.
            pub(crate) const WORDS: &[&str] = &[$($word),+];

            /// The type's name on the wire and in the table.
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)+
                }
            }
        }
    };
}

event_types! {
    /// The model asked for a call.
    ToolCalled "tool.called",
    /// A person is asked.
    ToolRequiresApproval "tool.requires_approval",
    /// The policy forbids it, and nobody was asked.
    ToolBlocked "tool.blocked",
    /// A person said yes.
    ToolApproved "tool.approved",
    /// A person said no.
    ToolRejected "tool.rejected",
    /// Nobody answered in time.
    ToolExpired "tool.expired",
    /// It was withdrawn and did not run.
    ToolCancelled "tool.cancelled",
    /// An execution was claimed.
    ToolStarted "tool.started",
    /// It ran and gave a result.
    ToolSucceeded "tool.succeeded",
    /// It ran and failed, or could not be run.
    ToolFailed "tool.failed",
    /// Its outcome is unknown.
    ToolInterrupted "tool.interrupted",
    /// A user message began a run.
    RunStarted "run.started",
    /// The run waits for a person.
    RunWaiting "run.waiting",
    /// The run goes on.
    RunResumed "run.resumed",
    /// The run gave its final answer, or was left behind.
    RunCompleted "run.completed",
    /// The run broke.
    RunFailed "run.failed",
    /// The run was cut off.
    RunCancelled "run.cancelled",
}

/// An event as it is stored, with the call that it is about as that stands now. Ids are the texts of the row: an event
/// whose ids cannot be read is told all the same.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Its place among all events: no two have the same, and whoever has seen one never finds a lower one later.
    pub(crate) seq: i64,
    /// What happened; or the word of the row, where this version does not know it.
    pub(crate) event_type: Result<EventType, String>,
    /// When.
    pub(crate) at: Timestamp,
    /// Who did it.
    pub(crate) actor: String,
    /// The root thread of its session.
    pub(crate) session_id: String,
    /// Its thread.
    pub(crate) thread_id: String,
    /// Its run.
    pub(crate) run_id: Option<String>,
    /// What was written down of it: hashes, never inputs or results.
    pub(crate) data: Map<String, Value>,
    /// The id of the call that it is about.
    pub(crate) tool_call_id: Option<String>,
    /// That call, where it can be read.
    pub(crate) call: Option<ToolCall>,
}

/// The server acting by itself, in events and decisions.
pub(crate) mod system {
    /// The policy let a call run.
    pub(crate) const POLICY: &str = "system:policy";
    /// Time ran out.
    pub(crate) const EXPIRY: &str = "system:expiry";
    /// What a crash left behind was put in order.
    pub(crate) const SWEEPER: &str = "system:sweeper";
    /// The model asked for what cannot be run.
    pub(crate) const INVALID: &str = "system:invalid";
    /// The model asked for what a person is being asked about already.
    pub(crate) const DUPLICATE: &str = "system:duplicate";
}
