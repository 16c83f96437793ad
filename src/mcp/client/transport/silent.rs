//! Requests of tests, which reach no person.

use futures::future::BoxFuture;
use holdpoint_core::call::Execution;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::{ExecId, ToolCallId};
use holdpoint_core::tool::tool_request::{Answer, Question};
use holdpoint_store::request_sender::{InputRequests, RequestSender};
use holdpoint_store::waited::WaitedTime;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Answers nothing, and counts the questions.
#[derive(Default)]
pub(in crate::mcp) struct SilentPeople(pub(in crate::mcp) AtomicU64);

impl InputRequests for SilentPeople {
    fn send(&self, _: (ToolCallId, Execution), _: Question) -> BoxFuture<'_, Answer> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Answer::Cancel })
    }

    fn send_once(&self, _: (ToolCallId, Execution), _: String, _: Question) -> BoxFuture<'_, Option<Answer>> {
        Box::pin(async { None })
    }

    fn withdraw(&self, _: (ToolCallId, Execution), _: String) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl SilentPeople {
    /// Returns the right of an execution that does not exist.
    pub(in crate::mcp) fn sender(self: &Arc<Self>) -> RequestSender {
        let id = uuid::Uuid::nil();
        let started_at = Timestamp::from_micros(0);
        let of = (ToolCallId::new(id), Execution { id: ExecId::new(id), attempt: 1, started_at });
        RequestSender::new(Some(self.clone()), of, WaitedTime::default())
    }
}
