//! What a turn says, in the order it says it. Encoders turn this into bytes.

use super::call::{Input, State, ToolCall};
use super::id::{MessageId, ToolCallId};
use super::message::Usage;
use super::run::TurnError;
use serde_json::{Value, json};

/// One thing a turn says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnEvent {
    /// A model call begins, in this message.
    StepStarted {
        /// The assistant's message.
        message_id: MessageId,
    },
    /// Words, live.
    Text(String),
    /// Thoughts, live.
    Reasoning(String),
    /// A call begins to be written, live.
    CallStarted {
        /// The call.
        tool_call_id: ToolCallId,
        /// Its tool.
        tool_name: String,
    },
    /// More of a call's inputs, live.
    CallArguments {
        /// The call.
        tool_call_id: ToolCallId,
        /// The next piece of JSON text.
        delta: String,
    },
    /// A call is stored.
    CallStored {
        /// The call.
        tool_call_id: ToolCallId,
        /// Its tool.
        tool_name: String,
        /// Its inputs, as stored.
        input: Input,
    },
    /// A call's end is stored.
    CallEnded {
        /// The call.
        tool_call_id: ToolCallId,
        /// What a page shows.
        shown: Shown,
    },
    /// Where held calls stand, stored.
    Validations(Vec<(ToolCallId, &'static str)>),
    /// A model call ended.
    StepFinished {
        /// Why.
        reason: FinishReason,
        /// What it cost, where known.
        usage: Option<Usage>,
    },
    /// The turn ended well: answered, or held.
    Finished {
        /// Why.
        reason: FinishReason,
        /// What it cost.
        usage: Usage,
    },
    /// Somebody stopped the turn.
    Cancelled {
        /// What it cost until then.
        usage: Usage,
    },
    /// The turn broke.
    Failed(TurnError),
}

/// What a page shows of an ended call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shown {
    /// The tool's own output.
    Output(Value),
    /// Why there is none.
    Error(String),
}

impl Shown {
    /// What a page shows of this call, if it has ended.
    pub(crate) fn of(call: &ToolCall) -> Option<Self> {
        match &call.state {
            State::Succeeded(_, _, output, _) => Some(Self::Output(output.clone())),
            _ => call.end().map(|end| Self::Error(end.result.clone())),
        }
    }

    /// The value in a tool result of AI SDK 4.
    pub(crate) fn into_result(self) -> Value {
        match self {
            Self::Output(output) => output,
            Self::Error(text) => json!({ "error": text }),
        }
    }
}

/// Why a model call, or a turn, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model was done.
    Stop,
    /// It ran into the length limit.
    Length,
    /// The provider filtered it.
    ContentFilter,
    /// It asked for tools.
    ToolCalls,
    /// It broke.
    Error,
    /// Something else.
    Other,
}

impl FinishReason {
    /// The reason's word on the wire and in the table.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContentFilter => "content-filter",
            Self::ToolCalls => "tool-calls",
            Self::Error => "error",
            Self::Other => "other",
        }
    }
}
