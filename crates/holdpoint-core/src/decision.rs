//! Decisions: verdicts about calls, with their actor and their surface. A decision never changes.

use super::clock::Timestamp;
use super::input::Input;

/// A decision as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The actor: `user:<sub>`, `system:policy` and the like.
    pub by: String,
    /// The approver as whose delegate the actor decided, as an actor.
    pub on_behalf_of: Option<String>,
    /// The time of the decision.
    pub at: Timestamp,
    /// Whether the decider approved inputs other than the model's.
    pub edited: bool,
    /// The reason of a rejection or a withdrawal, or the note of an approval, in the decider's words.
    pub reason: Option<String>,
    /// The hash of the inputs that the decision is about.
    pub input_hash: String,
    /// The surface through which the decision arrived.
    pub surface: Surface,
    /// The part of the policy that decided, if the policy did.
    pub source: Option<String>,
    /// The scope of the approval beyond the call, if it has one.
    pub remember: Option<Remember>,
}

/// The possible verdicts about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run.
    Approve,
    /// The call must not run.
    Reject,
    /// No decision arrived in time.
    Expire,
    /// The call was withdrawn.
    Cancel,
}

impl Verdict {
    /// Returns the name of the verdict in the documentation, for people, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Expire => "expire",
            Self::Cancel => "cancel",
        }
    }
}

/// Maximum length of the reason of a decision, in characters.
pub const REASON_MAX: usize = 2000;

/// The surface through which a decision arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// A route of the HTTP interface.
    Rest,
    /// The parts of a chat's body, where pages put their decisions.
    Stream,
    /// A message of a WebSocket.
    Websocket,
    /// A command at a terminal.
    Terminal,
    /// A button of a message in Slack.
    Slack,
    /// The approval handler of a process.
    Handler,
    /// The policy, without a person.
    Policy,
    /// The sweeper of the server, which closes calls after a deadline or a crash.
    Sweeper,
}

impl Surface {
    /// Returns the name of the surface in the documentation, for people, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Stream => "stream",
            Self::Websocket => "websocket",
            Self::Terminal => "terminal",
            Self::Slack => "slack",
            Self::Handler => "handler",
            Self::Policy => "policy",
            Self::Sweeper => "sweeper",
        }
    }
}

/// The scope of an approval beyond its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remember {
    /// All matching calls of the same session.
    Session,
}

/// A decision that a person or a handler makes about a held call.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// Run the call, with these inputs if given, otherwise with the proposed ones.
    Approve {
        /// Inputs that replace the model's.
        inputs: Option<Input>,
        /// The note of the decider, for the model and the record.
        note: Option<String>,
    },
    /// Do not run the call.
    Reject {
        /// The reason, for the model and the record.
        reason: Option<String>,
    },
}

impl Choice {
    /// An approval of the proposed inputs without a note.
    pub const AS_PROPOSED: Self = Self::Approve { inputs: None, note: None };

    /// Returns the verdict.
    pub const fn verdict(&self) -> Verdict {
        match self {
            Self::Approve { .. } => Verdict::Approve,
            Self::Reject { .. } => Verdict::Reject,
        }
    }
}
