//! Events: records of changes, in the past tense, written in the transaction of the change and never altered.

use super::call::{StateKind, ToolCall};
use super::clock::Timestamp;
use super::event_data::EventData;
use crate::vocabulary;
use serde_json::{Map, Value};

vocabulary! {
    /// The type of an event, in the past tense.
    pub enum EventType {
        /// The model made a call.
        ToolCalled = "tool.called",
        /// The call was held for an approval.
        ToolRequiresApproval = "tool.requires_approval",
        /// The policy forbids the call. There was no approval.
        ToolBlocked = "tool.blocked",
        /// The call was approved.
        ToolApproved = "tool.approved",
        /// The call was rejected.
        ToolRejected = "tool.rejected",
        /// A person's decision was refused and changed nothing.
        ToolDecisionRefused = "tool.decision_refused",
        /// The call waits longer for its decision.
        ToolExtended = "tool.extended",
        /// An approver delegated the call to another person.
        ToolDelegated = "tool.delegated",
        /// A person that may decide the call has read its secret inputs.
        ToolInputsRevealed = "tool.inputs_revealed",
        /// People were reminded of the deadline of the call.
        ToolReminded = "tool.reminded",
        /// A person approved the call, and more people have to.
        ToolVoted = "tool.voted",
        /// Further roles may decide the call.
        ToolEscalated = "tool.escalated",
        /// No decision arrived in time.
        ToolExpired = "tool.expired",
        /// The call was withdrawn and did not run.
        ToolCancelled = "tool.cancelled",
        /// An execution was claimed.
        ToolStarted = "tool.started",
        /// A service accepted the call, owns it now, and reports its outcome later.
        ToolAccepted = "tool.accepted",
        /// The tool reported its progress. Not each report is an event.
        ToolProgressed = "tool.progressed",
        /// The tool asked people for an answer while its call ran.
        ToolInputRequested = "tool.input_requested",
        /// A person proposed or confirmed an answer to the request, and more people have to confirm it.
        ToolInputProposed = "tool.input_proposed",
        /// The request was answered, expired or withdrawn.
        ToolInputEnded = "tool.input_ended",
        /// The call ran and returned an output.
        ToolSucceeded = "tool.succeeded",
        /// The call ran and failed, or could not run.
        ToolFailed = "tool.failed",
        /// The outcome of the call is unknown.
        ToolInterrupted = "tool.interrupted",
        /// A run started.
        RunStarted = "run.started",
        /// The run waits for held calls, or for calls that child runs, workers or owners execute.
        RunWaiting = "run.waiting",
        /// The run resumed.
        RunResumed = "run.resumed",
        /// The run gave its final answer, or the user sent a later message.
        RunCompleted = "run.completed",
        /// The run failed.
        RunFailed = "run.failed",
        /// The run was cancelled.
        RunCancelled = "run.cancelled",
    }
}

impl EventType {
    /// Returns the state that a call reaches by an event of this type and actor. The one
    /// exception is a lost execution of an idempotent call: the data of that event have the state.
    pub fn state_reached(self, actor: &str) -> Option<StateKind> {
        Some(match self {
            Self::ToolRequiresApproval => StateKind::Pending,
            Self::ToolApproved => StateKind::Approved,
            Self::ToolRejected | Self::ToolBlocked => StateKind::Rejected,
            Self::ToolExpired => StateKind::Expired,
            Self::ToolCancelled => StateKind::Cancelled,
            Self::ToolStarted => StateKind::Executing,
            Self::ToolSucceeded => StateKind::Succeeded,
            Self::ToolFailed if actor == system::INVALID => StateKind::Invalid,
            Self::ToolFailed => StateKind::Failed,
            Self::ToolInterrupted => StateKind::Interrupted,
            Self::ToolCalled
            | Self::ToolVoted
            | Self::ToolDecisionRefused
            | Self::ToolExtended
            | Self::ToolDelegated
            | Self::ToolInputsRevealed
            | Self::ToolReminded
            | Self::ToolEscalated
            | Self::ToolAccepted
            | Self::ToolProgressed
            | Self::ToolInputRequested
            | Self::ToolInputProposed
            | Self::ToolInputEnded
            | Self::RunStarted
            | Self::RunWaiting
            | Self::RunResumed
            | Self::RunCompleted
            | Self::RunFailed
            | Self::RunCancelled => return None,
        })
    }
}

/// An event as stored, with the current state of its call. Ids are the stored texts, so that an event with
/// unreadable ids is delivered too.
#[derive(Debug, Clone)]
pub struct Event {
    /// The id, which is the same for every reader and every delivery.
    pub event_id: String,
    /// The position among all events. Each position is unique. A reader that has read one event never finds a
    /// lower one later.
    pub seq: i64,
    /// The type. For a type that this version does not know: the stored text.
    pub event_type: Result<EventType, String>,
    /// The time of the change.
    pub at: Timestamp,
    /// The actor.
    pub actor: String,
    /// The root thread of the session.
    pub session_id: String,
    /// The thread.
    pub thread_id: String,
    /// The run.
    pub run_id: Option<String>,
    /// The recorded facts: hashes, never inputs or results.
    pub data: Map<String, Value>,
    /// The id of the call that the event is about.
    pub tool_call_id: Option<String>,
    /// The call, if it can be read.
    pub call: Option<ToolCall>,
}

impl Event {
    /// Returns the data, as far as this version can read them.
    pub fn facts(&self) -> EventData {
        EventData::read(&self.data)
    }
}

/// The actors of the server itself, in events and decisions.
pub mod system {
    /// The policy let a call run, or forbade it.
    pub const POLICY: &str = "system:policy";
    /// A deadline passed.
    pub const EXPIRY: &str = "system:expiry";
    /// The sweeper closed the work of a lost process, reminded people of a deadline, or escalated a call.
    pub const SWEEPER: &str = "system:sweeper";
    /// The model made a call that cannot run.
    pub const INVALID: &str = "system:invalid";
    /// An MCP server listed its tools for the first time, and so their definitions are accepted.
    pub const FIRST_LISTING: &str = "system:first_listing";
    /// The model repeated a call that a person rejected in the same run.
    pub const REJECTED: &str = "system:rejected";
    /// The model repeated a call that is pending, or that expired in a run that the server resumed.
    pub const DUPLICATE: &str = "system:duplicate";
}
