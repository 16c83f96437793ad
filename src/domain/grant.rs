//! Grants: approvals that also cover later matching calls of the same session.

use super::clock::Timestamp;
use super::id::{GrantId, ThreadId, ToolCallId};
use super::input::Input;
use super::input_bounds::InputBounds;

/// An approval that the server remembers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grant {
    /// The id of the grant.
    pub(crate) id: GrantId,
    /// The root thread of the session in which the grant applies.
    pub(crate) session_id: ThreadId,
    /// The tool that the grant covers, as registered when the model made the approved call.
    pub(crate) tool_name: String,
    /// The hash of that tool's schema.
    pub(crate) schema_hash: String,
    /// The inputs that the grant covers.
    pub(crate) inputs: CoveredInputs,
    /// The time from which the grant covers no call. `None`: the grant ends when it is revoked.
    pub(crate) until: Option<Timestamp>,
    /// How many later calls the grant covers. `None`: any number.
    pub(crate) uses: Option<Uses>,
    /// The granter: `user:<sub>` and the like.
    pub(crate) by: String,
    /// The granter's roles at that time.
    pub(crate) roles: Vec<String>,
    /// The call that the granter approved.
    pub(crate) tool_call_id: ToolCallId,
    /// The time of the approval.
    pub(crate) at: Timestamp,
}

/// The inputs that a grant covers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CoveredInputs {
    /// Any inputs.
    Any,
    /// The inputs with this hash.
    Equal(String),
    /// The inputs within these bounds.
    Within(InputBounds),
}

/// The number of later calls that a grant covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Uses {
    /// The number at the approval.
    pub(crate) given: u32,
    /// The number of calls that may still run.
    pub(crate) left: u32,
}

impl Grant {
    /// Whether the grant is about this tool with this schema.
    pub(crate) fn is_for(&self, tool_name: &str, schema_hash: &str) -> bool {
        self.tool_name == tool_name && self.schema_hash == schema_hash
    }

    /// Whether the grant covers these inputs.
    pub(crate) fn covers(&self, input: &Input, input_hash: &str) -> bool {
        match &self.inputs {
            CoveredInputs::Any => true,
            CoveredInputs::Equal(hash) => hash == input_hash,
            CoveredInputs::Within(bounds) => bounds.contain(input),
        }
    }

    /// Whether one more call may run under the grant.
    pub(crate) fn has_uses_left(&self) -> bool {
        self.uses.is_none_or(|uses| uses.left > 0)
    }
}

/// What an approval that is to be remembered covers beyond its call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GrantRequest {
    /// All later calls of the tool with the inputs that the setting of the server allows, and the waiting calls among
    /// them.
    Session,
    /// What the decider was shown.
    Shown(ShownGrant),
}

/// A grant as the decider was shown it before the approval.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShownGrant {
    /// The inputs of later calls.
    pub(crate) inputs: RequestedInputs,
    /// The time from which the grant covers no call.
    pub(crate) until: Option<Timestamp>,
    /// The number of later calls.
    pub(crate) uses: Option<u32>,
    /// The waiting calls that are approved too, each with the hash of what was shown.
    pub(crate) waiting: Vec<(ToolCallId, String)>,
}

/// The inputs of later calls that a decider wants to cover.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RequestedInputs {
    /// Any inputs.
    Any,
    /// The inputs that the approval runs.
    Equal,
    /// The inputs within these bounds.
    Within(InputBounds),
}

/// The process and the time for which grants are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsOf<'a> {
    /// The process in which the grants count, if they end with their process.
    pub(crate) process: Option<&'a str>,
    /// A grant whose time is over at this moment does not count.
    pub(crate) now: Timestamp,
}

/// The settings of a server for grants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remembering {
    /// The process with which grants end. `None`: grants last until they are revoked.
    pub(crate) process: Option<String>,
    /// Whether a grant covers only the inputs that were approved.
    pub(crate) equal_inputs: bool,
    /// The approval handler of this process, as an actor. Grants of this handler count; grants of other
    /// handlers do not.
    pub(crate) handler: String,
}

impl Remembering {
    /// Returns this process at this time.
    pub(crate) fn as_of(&self, now: Timestamp) -> AsOf<'_> {
        AsOf { process: self.process.as_deref(), now }
    }

    /// Whether the setting lets a grant for these inputs count.
    pub(crate) fn allows(&self, inputs: &CoveredInputs) -> bool {
        !self.equal_inputs || matches!(inputs, CoveredInputs::Equal(_))
    }
}
