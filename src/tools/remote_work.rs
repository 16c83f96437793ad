//! Work of MCP servers for calls, as the executor of calls sees it.

use futures::future::BoxFuture;
use holdpoint_core::call::Outcome;
use holdpoint_core::card::progress::Progress;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::owner::{InputRound, NextAction, TaskId};
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::tool_request::{Answer, Question};
use holdpoint_store::permit::Conversation;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A server that continues calls after its first answer.
pub(crate) trait RemoteServer: Send + Sync {
    /// Asks for the state of a task, of a call in this conversation.
    fn poll<'a>(&'a self, id: &'a TaskId, of: &'a Conversation) -> BoxFuture<'a, Polled>;

    /// Sends answers to questions of a task, by their keys. What the server does not get, it asks again.
    fn answer<'a>(
        &'a self,
        id: &'a TaskId,
        of: &'a Conversation,
        answers: Vec<(String, Answer)>,
    ) -> BoxFuture<'a, ()>;

    /// Asks the server to end a task. The server may refuse.
    fn cancel<'a>(&'a self, id: &'a TaskId, of: &'a Conversation) -> BoxFuture<'a, ()>;

    /// Whether the server can get a call of this conversation again now: it is connected, and its protocol has rounds.
    /// Another server would take the call for a new one.
    fn takes_rounds<'a>(&'a self, of: &'a Conversation) -> BoxFuture<'a, bool>;

    /// Sends a call again, once, with its inputs, the state of the round, and the answers by their keys. A dropped
    /// future tells the server that the result is not wanted any more.
    fn send_again<'a>(
        &'a self,
        call: SentCall<'a>,
        round: &'a InputRound,
        answers: BTreeMap<String, Answer>,
    ) -> BoxFuture<'a, RepeatAnswer>;
}

/// A call that is sent again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentCall<'a> {
    pub(crate) tool_call_id: ToolCallId,
    pub(crate) conversation: &'a Conversation,
    pub(crate) input: &'a Input,
}

/// What a poll of a task found.
#[derive(Debug)]
pub(crate) enum Polled {
    /// The task has not ended.
    Open {
        /// The questions that are open. A question without a form is cancelled.
        asks: Vec<(String, Option<Question>)>,
        /// Whether the task waits for something that holdpoint does not have.
        is_stuck: bool,
        /// The time until the next poll, as the server wants it.
        again: Option<Duration>,
        /// What the server says about the state of the task.
        progress: Option<Progress>,
    },
    /// The task has ended with this output, or failed for this reason.
    Ended(Result<Value, String>),
    /// The server does not know the task, or not any more.
    Unknown,
    /// The server did not answer.
    Unanswered,
}

/// The answer of a server that got a call again.
#[derive(Debug)]
pub(crate) enum RepeatAnswer {
    /// The call has ended with this output.
    Ended(Value),
    /// The call has another outcome.
    Failed(Outcome),
    /// The call continues.
    Next(NextAction),
    /// The answer is lost, or cannot be used.
    Unknown,
}
