//! Language models: the trait, the requests and the events.
//!
//! To add a wire, add a file beside the others of [`remote`]. To add a model of another kind, implement
//! [`LanguageModel`] in a new file and construct the model in `app`.

#![warn(missing_docs)]

pub mod config;
pub mod provider;
pub mod remote;
pub mod scripted;

pub use holdpoint_core::message::Usage;
pub use holdpoint_core::tool::input::Input;
pub use holdpoint_core::tool::tool_definition::ToolDefinition;
pub use holdpoint_core::turn::FinishReason;

use futures::stream::BoxStream;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// The most calls in one answer. A server that sends more is faulty.
pub const CALLS_MAX: usize = 256;
/// Fields of a model request that holdpoint writes itself, on any wire.
pub const OWN_FIELDS: [&str; 11] = [
    "model",
    "stream",
    "messages",
    "system",
    "input",
    "instructions",
    "contents",
    "systemInstruction",
    "tools",
    "tool_choice",
    "toolConfig",
];

/// A model that streams its answer.
pub trait LanguageModel: Send + Sync + Debug {
    /// Returns the name by which clients choose the model.
    fn id(&self) -> &str;

    /// Returns the name of the provider.
    fn provider(&self) -> &str;

    /// Returns the origin of the `provider_state` that the model emits. A model of the same origin gets the
    /// state back, a model of another origin does not.
    fn origin(&self) -> &str {
        self.provider()
    }

    /// Starts a request. The model sends nothing before the first poll, and dropping the stream ends the
    /// request. No item follows an `Err`.
    fn stream(&self, request: &ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>>;
}

/// A request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The operator's instructions.
    pub system: Option<String>,
    /// The conversation, oldest message first. Each call has exactly one answer, directly after the message
    /// of the call. User messages may follow each other, and the answer to a call.
    pub messages: Vec<ModelMessage>,
    /// The tools that are offered. Without tools the model must answer with text.
    pub tools: Vec<Arc<ToolDefinition>>,
    /// Whether the model may call the tools.
    pub tool_choice: ToolChoice,
}

/// Whether a model may call its tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model must answer with text. The tools are those of the requests before, because servers keep the
    /// beginning of a request, which has the tools, in a cache.
    None,
}

/// A message in the form that a model reads.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelMessage {
    /// The text of a person, or a note of the server.
    User(String),
    /// One step of an answer of a model.
    Assistant {
        /// The text.
        text: String,
        /// The calls of the step.
        calls: Vec<ModelCall>,
        /// The model that made the step.
        speaker: Speaker,
    },
    /// The answer to one call.
    Tool {
        /// The id of the call that the model knows.
        call_id: String,
        /// The tool.
        tool_name: String,
        /// The answer.
        text: String,
    },
}

/// The model that made a step, compared with the model of the request.
#[derive(Debug, Clone, PartialEq)]
pub enum Speaker {
    /// A model with the same [`LanguageModel::origin`] as the model of the request.
    Same {
        /// The state that the provider wants back with the step, unchanged.
        provider_state: Option<Value>,
    },
    /// Another model.
    Another,
}

/// A call in the form that a model reads.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// The id that the model knows.
    pub id: String,
    /// The tool.
    pub tool_name: String,
    /// The inputs.
    pub input: Input,
}

/// One event of an answer. `index` identifies a call within this stream.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// A sign of life without content. It restarts the idle timeout.
    Alive,
    /// The next piece of text.
    Text(String),
    /// The next piece of reasoning.
    Reasoning(String),
    /// A web page that the text refers to. The server emits each page once per step. It leaves out a page
    /// whose URL is not `http` or `https`, or is longer than 2048 bytes.
    Source {
        /// The URL of the page.
        url: String,
        /// The title of the page, if known.
        title: Option<String>,
    },
    /// A file that the model made. The text and the files of one step, as Base64, are limited to 4 MiB
    /// together.
    File {
        /// The media type of the file, such as `image/png`.
        media_type: String,
        /// The content of the file.
        data: Vec<u8>,
    },
    /// The start of a call.
    CallStarted {
        /// The index of the call in this stream.
        index: usize,
        /// The id of the call at the provider. Empty if the provider has no ids.
        provider_call_id: String,
        /// The tool.
        tool_name: String,
    },
    /// The next piece of the arguments of a call.
    CallArguments {
        /// The index of the call in this stream.
        index: usize,
        /// The next piece of JSON text.
        delta: String,
    },
    /// The end of the arguments of a call. A call without this event at the end of the stream is ignored.
    CallFinished {
        /// The index of the call in this stream.
        index: usize,
    },
    /// The end of a complete answer. Always the last event.
    Finished {
        /// The reason of the end.
        reason: FinishReason,
        /// The tokens of the answer, if the provider reports them.
        usage: Option<Usage>,
        /// The state that the provider wants back with this step.
        provider_state: Option<Value>,
    },
}

/// The error of an incomplete answer. The texts are for the log. Clients get only the kind.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The model is unavailable. A retry may succeed.
    #[error("the model's server is unavailable: {why}")]
    Unavailable {
        /// The message of the server, or the error of the connection.
        why: String,
        /// The wait that the server asks for, if any.
        retry_after: Option<Duration>,
    },
    /// The server refused the request. A retry would fail as well.
    #[error("the model's server failed: {0}")]
    Upstream(String),
    /// The conversation is longer than the model can read. A retry would fail as well.
    #[error("the conversation is longer than the model can read: {0}")]
    ContextFull(String),
    /// The answer broke off or cannot be read.
    #[error("the model's server sent a malformed answer: {0}")]
    Malformed(String),
}
