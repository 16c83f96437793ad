//! Grants: approvals that also cover later matching calls of the same session.

use super::clock::Timestamp;
use super::id::{GrantId, ThreadId, ToolCallId};

/// An approval that the server remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The id of the grant.
    pub(crate) id: GrantId,
    /// The root thread of the session in which the grant applies.
    pub(crate) session_id: ThreadId,
    /// The tool that the grant covers, as registered when the model made the approved call.
    pub(crate) tool_name: String,
    /// The hash of that tool's schema.
    pub(crate) schema_hash: String,
    /// The hash of the only inputs that the grant covers. `None`: the grant covers any inputs.
    pub(crate) input_hash: Option<String>,
    /// The granter: `user:<sub>` and the like.
    pub(crate) by: String,
    /// The granter's roles at that time.
    pub(crate) roles: Vec<String>,
    /// The call that the granter approved.
    pub(crate) tool_call_id: ToolCallId,
    /// The time of the approval.
    pub(crate) at: Timestamp,
}

impl Grant {
    /// Whether the grant matches a call of this tool, with its current schema, and these inputs. If
    /// `equal_inputs` is set, a grant for any inputs does not match.
    pub(crate) fn is_about(
        &self,
        tool_name: &str,
        schema_hash: &str,
        input_hash: &str,
        equal_inputs: bool,
    ) -> bool {
        let inputs = self.input_hash.as_deref().map_or(!equal_inputs, |bound| bound == input_hash);
        self.tool_name == tool_name && self.schema_hash == schema_hash && inputs
    }
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
