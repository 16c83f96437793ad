//! Runs: from a user message to the final answer, pauses included.

use super::clock::Timestamp;
use super::id::{MessageId, RunId, ThreadId};
use crate::vocabulary;

/// A run as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The id of the run.
    pub id: RunId,
    /// The thread of the run.
    pub thread_id: ThreadId,
    /// The assistant message, created with the run and kept through pauses and retries.
    pub assistant_message_id: MessageId,
    /// The status.
    pub status: RunStatus,
    /// Whether an expiry has had the server resume the run, and no person has acted since.
    pub resumed_alone: bool,
    /// The error of a failed run.
    pub error: Option<TurnError>,
    /// The options for the model.
    pub options: RunOptions,
    /// The time at which the run started.
    pub created_at: Timestamp,
    /// The time at which the run ended, if it has.
    pub finished_at: Option<Timestamp>,
}

/// The caller's choices for a run. Continuations keep them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// The model; `None`: the default.
    pub model: Option<String>,
    /// The tools that the model may see; `None`: all.
    pub tools: Option<Vec<String>>,
    /// The instructions for the model, if they replace the server's system prompt.
    pub instructions: Option<String>,
    /// The roles of the requester at the time when the run last started or resumed. The policy judges the
    /// calls of the run by these roles.
    pub roles: Vec<String>,
}

vocabulary! {
    /// The status of a run.
    pub enum RunStatus {
        /// A turn holds the lease of the run and moves it.
        Running = "running",
        /// The run has held or delegated calls, or is a child run that has not started. A continuation moves the
        /// run. If the user sent a later message, the last decision does.
        Waiting = "waiting",
        /// The model gave its final answer, or the user sent a later message instead of waiting.
        Completed = "completed",
        /// A turn failed. A continuation retries the run, unless it is cancelled.
        Failed = "failed",
        /// The run was cancelled.
        Cancelled = "cancelled",
    }

    /// Why a run failed, for programs.
    pub enum TurnErrorCode as "RunFailureCode" {
        /// The model was silent for too long.
        UpstreamTimeout = "upstream_timeout",
        /// The model's server refused the request or broke off.
        UpstreamError = "upstream_error",
        /// The model's server sent data that cannot be read.
        UpstreamMalformed = "upstream_malformed",
        /// The conversation is longer than the model can read.
        ContextFull = "context_full",
        /// The process that ran the turn has died.
        Interrupted = "interrupted",
        /// The model needed more steps than are allowed.
        StepLimit = "step_limit",
        /// The thread holds the maximum number of bytes.
        ThreadFull = "thread_full",
        /// A fault of this server.
        Internal = "internal",
    }
}

/// The reason why a turn ended early: a code for clients, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnError {
    /// The kind of failure.
    pub code: TurnErrorCode,
    /// One sentence, safe to show: without internal details and without text of a provider.
    pub message: String,
}

impl TurnError {
    /// A fault of this server.
    pub fn internal() -> Self {
        Self { code: TurnErrorCode::Internal, message: "The server failed.".to_owned() }
    }

    /// The process that ran the turn has died.
    pub fn interrupted() -> Self {
        let message = "The server stopped before the answer was complete.".to_owned();
        Self { code: TurnErrorCode::Interrupted, message }
    }

    /// An approved call did not end within the time that a page waits.
    pub fn outcome_not_known_yet() -> Self {
        let message =
            "An approved call is still under way. Its outcome will stand in the messages.".to_owned();
        Self { code: TurnErrorCode::Interrupted, message }
    }

    /// The limit of concurrent turns, or of turns per minute, is reached.
    pub fn no_room() -> Self {
        let message = "There are too many turns at once, or in this minute. Go on later.".to_owned();
        Self { code: TurnErrorCode::Interrupted, message }
    }

    /// Whether the conversation is longer than the model can read.
    pub fn is_context_full(&self) -> bool {
        self.code == TurnErrorCode::ContextFull
    }

    /// The thread holds the maximum number of bytes.
    pub fn thread_full() -> Self {
        let message = "The conversation is full. Begin a new one.".to_owned();
        Self { code: TurnErrorCode::ThreadFull, message }
    }

    /// The turn lost its lease, or its thread was deleted.
    pub fn taken_over() -> Self {
        let message = "The turn was taken over, or its thread was deleted.".to_owned();
        Self { code: TurnErrorCode::Interrupted, message }
    }
}

impl RunOptions {
    /// Whether the model may see this tool.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
    }

    /// Returns the options for a user with these roles, on whose behalf only the tools `to` run; `None` is
    /// all tools. The result never has more tools than before: a tool that the caller left out or could not
    /// use stays out.
    pub fn on_behalf_of(self, roles: Vec<String>, to: Option<Vec<String>>) -> Self {
        let tools = match (self.tools, to) {
            (Some(tools), Some(to)) => Some(tools.into_iter().filter(|name| to.contains(name)).collect()),
            (tools, to) => tools.or(to),
        };
        Self { tools, roles, ..self }
    }
}
