//! Messages, and the steps an assistant's message is made of.

use super::call::ToolCall;
use super::clock::Timestamp;
use super::id::{MessageId, RunId, ThreadId, ToolCallId};
use serde::{Deserialize, Serialize};

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    /// Its id, minted by the server.
    pub(crate) id: MessageId,
    /// The name the page gave it, if it did.
    pub(crate) client_id: Option<String>,
    /// The thread it stands in.
    pub(crate) thread_id: ThreadId,
    /// The run it began (a user's) or belongs to (an assistant's).
    pub(crate) run_id: RunId,
    /// Its place in the thread.
    pub(crate) ordinal: i64,
    /// What it says, and so who says it.
    pub(crate) body: Body,
    /// How far it has come.
    pub(crate) status: MessageStatus,
    /// When it was stored.
    pub(crate) created_at: Timestamp,
}

impl Message {
    /// The steps of an assistant's message; a person's has none.
    pub(crate) fn steps(&self) -> &[Step] {
        match &self.body {
            Body::User(_) => &[],
            Body::Assistant(steps) => steps,
        }
    }

    /// Its calls, in order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.steps().iter().flat_map(|step| &step.calls)
    }
}

/// Who speaks, with the words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    /// A person's words.
    User(String),
    /// A model's steps, in order.
    Assistant(Vec<Step>),
}

/// How far a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageStatus {
    /// As it will stay, or held.
    Complete,
    /// A turn is writing it now.
    Streaming,
    /// A turn ended before its time; continuing goes on from here.
    Interrupted,
    /// Cut off by an edit or a regenerate; kept, not shown, not sent.
    Superseded,
}

impl MessageStatus {
    /// Every status.
    pub(crate) const ALL: [Self; 4] = [Self::Complete, Self::Streaming, Self::Interrupted, Self::Superseded];

    /// The status's word on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Streaming => "streaming",
            Self::Interrupted => "interrupted",
            Self::Superseded => "superseded",
        }
    }
}

/// One model call and what it said.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    /// Its place in the message, from 0.
    pub(crate) n: i32,
    /// Whether it may be sent to the model again.
    pub(crate) status: StepStatus,
    /// What it said, in order.
    pub(crate) parts: Vec<Part>,
    /// The calls its parts name, in order.
    pub(crate) calls: Vec<ToolCall>,
    /// Tokens read and written, where the provider told.
    pub(crate) usage: Option<Usage>,
    /// Who said it: the model's origin.
    pub(crate) origin: Option<String>,
    /// What that wants back, unchanged: thought signatures, item ids.
    pub(crate) provider_state: Option<serde_json::Value>,
    /// When it was opened.
    pub(crate) created_at: Timestamp,
}

/// Whether a step was written whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepStatus {
    /// Being written.
    Streaming,
    /// Whole: its calls are stored with it.
    Complete,
    /// Broken off: shown, never sent to the model.
    Interrupted,
}

/// A piece of a step, as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Part {
    /// Words for the person.
    Text {
        /// The words.
        text: String,
    },
    /// The model's thoughts, where a provider shows them.
    Reasoning {
        /// The thoughts.
        text: String,
    },
    /// A call, by its id.
    ToolCall {
        /// The call.
        tool_call_id: ToolCallId,
    },
}

/// Tokens of one model call, or of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

impl Usage {
    /// The sum, saturating.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
        }
    }
}
