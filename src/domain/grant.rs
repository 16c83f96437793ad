//! Grants: a yes that reaches beyond its call, to such calls of the same session.

use super::clock::Timestamp;
use super::id::{GrantId, ThreadId, ToolCallId};

/// A yes that was to be remembered, and is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Its id.
    pub(crate) id: GrantId,
    /// The root thread of the session in which it holds.
    pub(crate) session_id: ThreadId,
    /// The tool that it is about, as it was when the call was asked for that was approved.
    pub(crate) tool_name: String,
    /// The schema of that.
    pub(crate) schema_hash: String,
    /// The hash of the one set of inputs that it is about; without it, it is about any.
    pub(crate) input_hash: Option<String>,
    /// Who said yes: `user:<sub>` and the like.
    pub(crate) by: String,
    /// The roles they had then.
    pub(crate) roles: Vec<String>,
    /// The call to which they said it.
    pub(crate) tool_call_id: ToolCallId,
    /// When.
    pub(crate) at: Timestamp,
}

impl Grant {
    /// Whether it is about calls of this tool, as it is now, with these inputs. Where only equal inputs count, a yes that
    /// was about any counts no more.
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

/// How a server remembers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remembering {
    /// The process with which grants end; without it they stand until they are revoked.
    pub(crate) process: Option<String>,
    /// Whether a grant is about the inputs that were approved, and no others.
    pub(crate) equal_inputs: bool,
    /// The approval handler of this process, as an actor: what it had remembered counts, and that of no other.
    pub(crate) handler: String,
}
