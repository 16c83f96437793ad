//! Decisions: what was said about a call, by whom, from where. They never change.

use super::call::Input;
use super::clock::Timestamp;

/// A decision as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    /// What was said.
    pub(crate) verdict: Verdict,
    /// Who said it: `user:<sub>`, `system:policy` and the like.
    pub(crate) by: String,
    /// When.
    pub(crate) at: Timestamp,
    /// Whether other inputs than the model's were approved.
    pub(crate) edited: bool,
    /// Why, in the decider's words.
    pub(crate) reason: Option<String>,
    /// The hash of the inputs decided on.
    pub(crate) input_hash: String,
    /// Where it came in.
    pub(crate) surface: Surface,
    /// What of the policy decided, if it did.
    pub(crate) source: Option<String>,
    /// How far the yes reaches beyond the call, if it does.
    pub(crate) remember: Option<Remember>,
}

/// What can be said about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Run it.
    Approve,
    /// Do not run it.
    Reject,
    /// Too late.
    Expire,
    /// Not wanted any more.
    Cancel,
}

impl Verdict {
    /// The verdict's word on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::Expire => "expire",
            Self::Cancel => "cancel",
        }
    }
}

/// Where a decision came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// A route of the HTTP interface.
    Rest,
    /// The parts of a chat's body, where pages put their answers.
    Stream,
    /// A message of a WebSocket.
    Websocket,
    /// A command at a terminal.
    Terminal,
    /// The approval handler of a process.
    Handler,
    /// The policy, without a person.
    Policy,
    /// The server, putting in order what time left behind.
    Sweeper,
}

impl Surface {
    /// All of them.
    pub(crate) const ALL: [Self; 7] = [
        Self::Rest,
        Self::Stream,
        Self::Websocket,
        Self::Terminal,
        Self::Handler,
        Self::Policy,
        Self::Sweeper,
    ];

    /// The surface's word on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Stream => "stream",
            Self::Websocket => "websocket",
            Self::Terminal => "terminal",
            Self::Handler => "handler",
            Self::Policy => "policy",
            Self::Sweeper => "sweeper",
        }
    }
}

/// How far a yes reaches beyond its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remember {
    /// To such calls of the same session.
    Session,
}

impl Remember {
    /// Its word on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
        }
    }
}

/// The answer of a person or a handler to the question whether a call may run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    /// Run it, with these inputs if any are given, else as proposed.
    Approve {
        /// Inputs in place of the model's.
        inputs: Option<Input>,
    },
    /// Do not run it.
    Reject {
        /// Why, for the model and the record.
        reason: Option<String>,
    },
}
