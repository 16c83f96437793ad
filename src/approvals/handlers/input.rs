//! Requests of tools that run, as a handler receives them.

use super::{Input, RequestId, RequestKind, Requester, RunId, ThreadId, ToolCallId, time_of};
use holdpoint_store::StoredRequest;
use std::fmt;
use std::time::SystemTime;

/// A request of a tool that runs, as its handler receives it.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct InputRequest {
    /// The request.
    pub request_id: RequestId,
    /// What the tool asks for.
    pub kind: RequestKind,
    /// The text for a person, as the tool wrote it. Characters that hide or reverse text are replaced by their numbers.
    pub message: String,
    /// The JSON Schema of the content of an answer.
    pub schema: Input,
    /// The call that waits for the answer.
    pub tool_call_id: ToolCallId,
    /// The thread in which the model made the call.
    pub thread_id: ThreadId,
    /// The root thread of the session.
    pub session_id: ThreadId,
    /// The run of the call.
    pub run_id: RunId,
    /// The name of the tool.
    pub tool_name: String,
    /// The user on whose behalf the call runs.
    pub requester: Requester,
    /// When the tool waits no longer, by the clock of the database.
    pub expires_at: Option<SystemTime>,
}

impl fmt::Debug for InputRequest {
    /// Omits the message and the schema, which do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputRequest")
            .field("request_id", &self.request_id)
            .field("kind", &self.kind)
            .field("tool_name", &self.tool_name)
            .finish_non_exhaustive()
    }
}

impl InputRequest {
    pub(in crate::approvals) fn of(asked: &StoredRequest) -> Self {
        let StoredRequest { request, call, thread } = asked;
        Self {
            request_id: request.id,
            kind: request.question.kind,
            message: request.question.message.clone(),
            schema: request.question.schema.clone(),
            tool_call_id: call.id,
            thread_id: thread.id,
            session_id: thread.session_id,
            run_id: call.run_id,
            tool_name: call.name.clone(),
            requester: thread.requester(),
            expires_at: time_of(request.expires_at),
        }
    }
}

/// The answer of a handler to a request of a tool.
#[derive(Clone, PartialEq)]
pub enum InputAnswer {
    /// The tool gets this content, which has to fit the schema of the request.
    Accepted {
        /// The fields of the answer.
        content: Input,
    },
    /// The tool gets no content, and may continue without it.
    Declined,
    /// The tool gets no content, and should end what it does.
    Cancelled,
    /// The request is left to the routes.
    Deferred,
}

impl fmt::Debug for InputAnswer {
    /// Omits the content, which does not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted { .. } => "Accepted",
            Self::Declined => "Declined",
            Self::Cancelled => "Cancelled",
            Self::Deferred => "Deferred",
        })
    }
}
