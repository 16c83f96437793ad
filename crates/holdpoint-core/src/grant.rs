//! Grants: approvals that also cover later matching calls of the same session.

use super::clock::Timestamp;
use super::id::{GrantId, ThreadId, ToolCallId};
use crate::tool::input::Input;
use crate::tool::input_bounds::InputBounds;

/// An approval that the server remembers.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The id of the grant.
    pub id: GrantId,
    /// The root thread of the session in which the grant applies.
    pub session_id: ThreadId,
    /// The tool that the grant covers, as registered when the model made the approved call.
    pub tool_name: String,
    /// The hash of that tool's schema.
    pub schema_hash: String,
    /// The inputs that the grant covers.
    pub inputs: CoveredInputs,
    /// The time from which the grant covers no call. `None`: the grant ends when it is revoked.
    pub until: Option<Timestamp>,
    /// How many later calls the grant covers. `None`: any number.
    pub uses: Option<GrantUses>,
    /// The granter: `user:<sub>` and the like.
    pub by: String,
    /// The granter's roles at that time.
    pub roles: Vec<String>,
    /// The call that the granter approved.
    pub tool_call_id: ToolCallId,
    /// The time of the approval.
    pub at: Timestamp,
}

/// The inputs that a grant covers.
#[derive(Debug, Clone, PartialEq)]
pub enum CoveredInputs {
    /// Any inputs.
    Any,
    /// The inputs with this hash.
    Equal(String),
    /// The inputs within these bounds.
    Within(InputBounds),
}

/// The number of later calls that a grant covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantUses {
    /// The number at the approval.
    pub given: u32,
    /// The number of calls that may still run.
    pub left: u32,
}

impl Grant {
    /// Whether the grant is about this tool with this schema.
    pub fn is_for(&self, tool_name: &str, schema_hash: &str) -> bool {
        self.tool_name == tool_name && self.schema_hash == schema_hash
    }

    /// Whether the grant covers these inputs.
    pub fn covers(&self, input: &Input, input_hash: &str) -> bool {
        match &self.inputs {
            CoveredInputs::Any => true,
            CoveredInputs::Equal(hash) => hash == input_hash,
            CoveredInputs::Within(bounds) => bounds.contain(input),
        }
    }

    /// Whether one more call may run under the grant.
    pub fn has_uses_left(&self) -> bool {
        self.uses.is_none_or(|uses| uses.left > 0)
    }
}

/// What an approval that is to be remembered covers beyond its call.
#[derive(Debug, Clone, PartialEq)]
pub enum GrantRequest {
    /// All later calls of the tool with the inputs that the setting of the server allows, and the waiting calls among
    /// them.
    Session,
    /// What the decider was shown.
    Shown(ShownGrant),
}

/// A grant as the decider was shown it before the approval.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownGrant {
    /// The inputs of later calls.
    pub inputs: RequestedInputs,
    /// The time from which the grant covers no call.
    pub until: Option<Timestamp>,
    /// The number of later calls.
    pub uses: Option<u32>,
    /// The waiting calls that are approved too, each with the hash of what was shown.
    pub waiting: Vec<(ToolCallId, String)>,
}

/// The inputs of later calls that a decider wants to cover.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestedInputs {
    /// Any inputs.
    Any,
    /// The inputs that the approval runs.
    Equal,
    /// The inputs within these bounds.
    Within(InputBounds),
}

/// The process and the time for which grants are read.
#[derive(Debug, Clone, Copy)]
pub struct GrantsAsOf<'a> {
    /// The process in which the grants count, if they end with their process.
    pub process: Option<&'a str>,
    /// A grant whose time is over at this moment does not count.
    pub now: Timestamp,
}

/// The settings of a server for grants.
#[derive(Debug, Clone, Default)]
pub struct Remembering {
    /// The process with which grants end. `None`: grants last until they are revoked.
    pub process: Option<String>,
    /// Whether a grant covers only the inputs that were approved.
    pub equal_inputs: bool,
    /// The approval handler of this process, as an actor. Grants of this handler count; grants of other
    /// handlers do not.
    pub handler: String,
}

impl Remembering {
    /// Returns this process at this time.
    pub fn as_of(&self, now: Timestamp) -> GrantsAsOf<'_> {
        GrantsAsOf { process: self.process.as_deref(), now }
    }

    /// Whether the setting lets a grant for these inputs count.
    pub fn allows(&self, inputs: &CoveredInputs) -> bool {
        !self.equal_inputs || matches!(inputs, CoveredInputs::Equal(_))
    }
}
