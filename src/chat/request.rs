//! The requests for turns, as the routes read them from their bodies, and the reasons to refuse one.

use super::earlier::EarlierMessages;
use crate::approvals::{DecideError, Denied, has_denied};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::run::RunOptions;
use std::collections::HashSet;

/// A request for a turn: the action, and the decisions that the client posts with it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnRequest {
    pub(crate) action: Action,
    pub(crate) options: RunOptions,
    /// The decisions about held calls among the posted parts, new and repeated ones.
    pub(crate) decisions: Vec<PostedDecision>,
    /// What the client shows of the calls.
    pub(crate) shown: ShownCalls,
    /// The key of the request, for a user message without a name.
    pub(crate) key: Option<String>,
    /// The user messages that the client shows before the new one.
    pub(crate) earlier: EarlierMessages,
}

/// What a client shows of the calls in its history. It only determines what the server reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShownCalls {
    /// The calls that the client shows without an end.
    pub(crate) open: HashSet<ToolCallId>,
    /// The calls whose decisions the client has.
    pub(crate) decided: HashSet<ToolCallId>,
    /// Those of them whose decision is not marked as one that an answer of the client came after.
    pub(crate) on_time: HashSet<ToolCallId>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// A new user message.
    New {
        text: String,
        /// The client's name for the message. If a message with this name and text is stored, the client posts
        /// that message again.
        client_id: Option<String>,
    },
    /// The whole conversation as the client has it. The server derives the action from it. The server reads
    /// only the texts of its user messages, and whether a user message is the last one.
    History {
        /// The messages, oldest first.
        messages: Vec<PostedMessage>,
    },
    /// Another text for a user message. The new message replaces that message and everything after it.
    Edit {
        /// The message: its id, or the client's name for it.
        message: String,
        text: String,
    },
    /// Another answer to a user message.
    Regenerate {
        /// The answer by its id, or the user message by its id or the client's name for it. `None` if the
        /// client names no message.
        answer: Option<String>,
        /// The user message as the client has it, without a text if the client has none.
        question: Option<PostedMessage>,
    },
    /// Continue the conversation.
    Continue {
        /// The assistant message to continue, if the client names one.
        message: Option<String>,
    },
}

/// A decision about a held call, as a client posts it. The call itself is read from the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PostedDecision {
    pub(crate) tool_call_id: ToolCallId,
    /// Whether the client approves the call.
    pub(crate) approved: bool,
    /// The hash of the card that the client shows, if the client posts its card.
    pub(crate) input_hash: Option<String>,
    /// The reason of a rejection, or the note of an approval.
    pub(crate) reason: Option<String>,
}

impl TurnRequest {
    /// Returns a request that only continues.
    pub(crate) fn continuation() -> Self {
        let action = Action::Continue { message: None };
        Self {
            action,
            options: RunOptions::default(),
            decisions: Vec::new(),
            shown: ShownCalls::default(),
            key: None,
            earlier: EarlierMessages::default(),
        }
    }

    /// Returns the text that a user message may get from this request.
    pub(crate) fn user_text(&self) -> Option<&str> {
        match &self.action {
            Action::New { text, .. } | Action::Edit { text, .. } => Some(text),
            Action::History { messages } => messages.last()?.user_text.as_deref(),
            Action::Regenerate { question, .. } => question.as_ref()?.user_text.as_deref(),
            Action::Continue { .. } => None,
        }
    }
}

/// A message as a client posts it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PostedMessage {
    /// The text of a user message. The server trusts no content of other roles.
    pub(crate) user_text: Option<String>,
    /// The client's name for the message.
    pub(crate) id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ThreadName {
    Known(String),
    /// A thread under the caller's own name. It is created if it does not exist.
    OrNew(String),
}

/// The reason why a request gets no turn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdmitError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Another turn of the thread is running.
    #[error("a turn of this thread is under way")]
    TurnInProgress,
    #[error("there is nothing to continue")]
    NothingToContinue,
    /// The server is stopping and starts nothing.
    #[error("the server is stopping")]
    Stopping,
    /// The limit of concurrent turns is reached.
    #[error("{max} turns of this {of} are under way")]
    TooManyTurns {
        /// The owner of the limit: `user` or `tenant`.
        of: &'static str,
        max: u32,
    },
    /// Calls of the thread are pending, and `approval.while_pending` is `reject`.
    #[error("calls of this thread await approval")]
    AwaitingApproval,
    /// The name of the message, or the key of the request, names a stored message with another text.
    #[error("{0:?} names a stored message with another text")]
    NameUsed(String),
    /// The thread has no room for a new message.
    #[error("the thread holds up to {max} {of}")]
    ThreadFull {
        max: u64,
        /// The unit of the limit: `messages` or `bytes`.
        of: &'static str,
    },
    /// No such model.
    #[error("there is no model {0:?}")]
    UnknownModel(String),
    /// No such tool.
    #[error("there is no tool {0:?}")]
    UnknownTool(String),
    /// A posted decision was refused, with the cause. Either the request only continues and none of its new
    /// decisions was accepted, or a retry of the request may succeed.
    #[error(transparent)]
    Refused(DecideError),
}

has_denied!(AdmitError);
