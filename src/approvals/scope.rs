//! What a call is named as a part of.

use crate::domain::call::ToolCall;
use crate::domain::id::{RunId, ThreadId};
use crate::store::Thread;

/// What a call is named as a part of. One that is a part of something else is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Of nothing: its id tells.
    Anything,
    /// Of this run.
    Run(RunId),
    /// Of the session with this root thread.
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
