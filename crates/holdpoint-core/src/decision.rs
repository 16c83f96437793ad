//! Decisions: verdicts about calls, with their actor and their surface. A decision never changes.

use super::clock::Timestamp;
use crate::tool::input::Input;
use crate::vocabulary;

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

/// Maximum length of the reason of a decision, in characters.
pub const REASON_MAX: usize = 2000;

vocabulary! {
    /// The verdict of a decision: `approve` and `reject` of a person, a handler or the policy, `expire` of the deadline,
    /// `cancel` of a cancellation.
    pub enum Verdict {
        /// The call may run.
        Approve = "approve",
        /// The call must not run.
        Reject = "reject",
        /// No decision arrived in time.
        Expire = "expire",
        /// The call was withdrawn.
        Cancel = "cancel",
    }

    /// The surface on which a decision arrived.
    pub enum Surface {
        /// A route of the HTTP interface.
        Rest = "rest",
        /// The parts of a chat's body, where pages put their decisions.
        Stream = "stream",
        /// A message of a WebSocket.
        Websocket = "websocket",
        /// A command at a terminal.
        Terminal = "terminal",
        /// A button of a message in Slack.
        Slack = "slack",
        /// The approval handler of a process.
        Handler = "handler",
        /// The policy, without a person.
        Policy = "policy",
        /// The sweeper of the server, which closes calls after a deadline or a crash.
        Sweeper = "sweeper",
    }

    /// The scope of an approval beyond its call. `session`: the approval covers later calls of the same tool in the session
    /// without a hold, until the tool's schema changes.
    pub enum Remember {
        /// All matching calls of the same session.
        Session = "session",
    }
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
