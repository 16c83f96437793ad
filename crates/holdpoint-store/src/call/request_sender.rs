//! Questions of executing calls to people.

use crate::call::waited::{UnsettledExecution, WaitedTime};
use futures::future::BoxFuture;
use holdpoint_core::call::Execution;
use holdpoint_core::card::progress::Progress;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::tool::tool_request::{Answer, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of questions of one call.
pub const REQUESTS_MAX: u64 = 10;

/// Asks people on behalf of executing calls.
pub trait InputRequests: Send + Sync {
    /// Asks those that may decide the call, and returns their answer. Without one the answer is [`Answer::Cancel`], also
    /// for a request beyond the limits. A dropped future withdraws the request.
    fn send(&self, of: (ToolCallId, Execution), question: Question) -> BoxFuture<'_, Answer>;

    /// Asks in the same way, and once for each key of an execution: a repeated question is the same request, also after
    /// a restart. A dropped future leaves the request open. `None` if the question could not be asked now.
    fn send_once(
        &self,
        of: (ToolCallId, Execution),
        key: String,
        question: Question,
    ) -> BoxFuture<'_, Option<Answer>>;

    /// Withdraws the request of [`send_once`](Self::send_once) if it is still open.
    fn withdraw(&self, of: (ToolCallId, Execution), key: String) -> BoxFuture<'_, ()>;
}

/// The right of one execution to ask.
#[derive(Clone)]
pub struct RequestSender {
    /// `None` before the execution begins.
    asks: Option<Arc<dyn InputRequests>>,
    of: (ToolCallId, Execution),
    waited: WaitedTime,
    /// The questions so far, those of clones included.
    asked: Arc<AtomicU64>,
}

impl RequestSender {
    /// Returns the right of this execution, whose waits count as `waited`.
    pub fn new(
        asks: Option<Arc<dyn InputRequests>>,
        of: (ToolCallId, Execution),
        waited: WaitedTime,
    ) -> Self {
        Self { asks, of, waited, asked: Arc::default() }
    }

    /// Returns whether the execution is settled, without being a part of it.
    pub fn unsettled(&self) -> UnsettledExecution {
        self.waited.unsettled()
    }

    /// The tool has reported progress: its time begins again.
    pub fn report_progress(&self, progress: Option<Progress>) {
        self.waited.report(progress);
    }

    /// Whether the execution may ask at least once more.
    pub fn may_ask(&self) -> bool {
        self.asked.load(Ordering::Relaxed) < REQUESTS_MAX
    }

    /// Asks, and returns the answer. The time limits of the call leave the wait out. A question beyond
    /// [`REQUESTS_MAX`] is cancelled before it reaches the database, because an MCP server can ask without end.
    pub async fn send(&self, question: Question) -> Answer {
        let Some(asks) = &self.asks else { return Answer::Cancel };
        if self.asked.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
            return Answer::Cancel;
        }
        let _waiting = self.waited.begin();
        asks.send(self.of, question).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use holdpoint_core::clock::Timestamp;
    use holdpoint_core::id::ExecId;
    use holdpoint_core::tool::input::Input;
    use holdpoint_core::tool::tool_request::RequestKind;

    /// Answers nothing, and counts the questions.
    #[derive(Default)]
    struct SilentServer(AtomicU64);

    impl InputRequests for SilentServer {
        fn send(&self, _: (ToolCallId, Execution), _: Question) -> BoxFuture<'_, Answer> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Answer::Cancel })
        }

        fn send_once(
            &self,
            _: (ToolCallId, Execution),
            _: String,
            _: Question,
        ) -> BoxFuture<'_, Option<Answer>> {
            Box::pin(async { None })
        }

        fn withdraw(&self, _: (ToolCallId, Execution), _: String) -> BoxFuture<'_, ()> {
            Box::pin(async {})
        }
    }

    #[test]
    fn questions_beyond_the_limit_are_cancelled_without_being_asked() {
        let counts = Arc::new(SilentServer::default());
        let id = uuid::Uuid::nil();
        let started_at = Timestamp::from_micros(0);
        let of = (ToolCallId::new(id), Execution { id: ExecId::new(id), attempt: 1, started_at });
        let sender = RequestSender::new(Some(counts.clone()), of, WaitedTime::default());
        let ask = |sender: &RequestSender| {
            let question = Question::new(RequestKind::Custom, "?", Input::new());
            sender.send(question).now_or_never().unwrap()
        };
        for _ in 0..REQUESTS_MAX {
            assert_eq!(ask(&sender.clone()), Answer::Cancel);
        }
        assert!(!sender.may_ask());
        assert_eq!(ask(&sender), Answer::Cancel);
        assert_eq!(counts.0.load(Ordering::Relaxed), REQUESTS_MAX);
    }
}
