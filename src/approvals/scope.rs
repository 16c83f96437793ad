//! The scope in which a request names a call.

use holdpoint_core::call::ToolCall;
use holdpoint_core::id::{RunId, ThreadId};
use holdpoint_store::Thread;

/// The scope in which a request names a call. A call outside of the scope is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// No scope: the id is enough.
    Anything,
    /// The call belongs to this run.
    Run(RunId),
    /// The call belongs to the session with this root thread.
    Session(ThreadId),
}

impl Scope {
    pub(super) fn contains(self, call: &ToolCall, thread: &Thread) -> bool {
        match self {
            Self::Anything => true,
            Self::Run(run) => call.run_id == run,
            Self::Session(session) => thread.session_id == session,
        }
    }
}
