//! Tasks of MCP servers, as the executor of calls sees them.

use crate::domain::owner::TaskId;
use crate::domain::tool_request::{Answer, Question};
use futures::future::BoxFuture;
use serde_json::Value;
use std::time::Duration;

/// A server that executes calls as tasks.
pub(crate) trait TaskServer: Send + Sync {
    /// Asks for the state of a task.
    fn poll<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Polled>;

    /// Sends answers to questions of a task, by their keys. What the server does not get, it asks again.
    fn answer<'a>(&'a self, id: &'a TaskId, answers: Vec<(String, Answer)>) -> BoxFuture<'a, ()>;

    /// Asks the server to end a task. The server may refuse.
    fn cancel<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, ()>;
}

/// What a poll of a task found.
#[derive(Debug)]
pub(crate) enum Polled {
    /// The task has not ended.
    Open {
        /// The questions that are open. A question without a form is declined.
        asks: Vec<(String, Option<Question>)>,
        /// Whether the task waits for something that holdpoint does not have.
        is_stuck: bool,
        /// The time until the next poll, as the server wants it.
        again: Option<Duration>,
    },
    /// The task has ended with this output, or failed for this reason.
    Ended(Result<Value, String>),
    /// The server does not know the task, or not any more.
    Unknown,
    /// The server did not answer.
    Unanswered,
}
