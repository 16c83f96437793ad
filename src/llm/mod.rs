//! Language models: the trait, what is asked of one and what it says.
//!
//! To add a wire: a file beside the others of [`remote`]. To add a model of another kind: implement
//! [`LanguageModel`] in a file of its own and name it where `app` makes models.

pub mod remote;
pub mod scripted;

pub use crate::domain::call::Input;
pub use crate::domain::message::Usage;
pub use crate::domain::turn::FinishReason;

use futures::stream::BoxStream;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// More calls than this in one answer are no mistake any more but a broken server.
pub(crate) const CALLS_MAX: usize = 256;

/// A model that streams its answer.
pub trait LanguageModel: Send + Sync + Debug {
    /// The name clients choose it by.
    fn id(&self) -> &str;

    /// Who serves it.
    fn provider(&self) -> &str;

    /// Who understands the `provider_state` it gives: a model of the same origin gets it back, any other does not.
    fn origin(&self) -> &str {
        self.provider()
    }

    /// Asks. Nothing is sent before the first poll; dropping the stream ends the request. After an `Err`
    /// nothing follows.
    fn stream(&self, request: &ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>>;
}

/// What a model is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The operator's instructions.
    pub system: Option<String>,
    /// The conversation, oldest first. Each call in it is answered once, right behind its message.
    pub messages: Vec<ModelMessage>,
    /// The tools it may call; none means that it has to answer in words.
    pub tools: Vec<Arc<ToolDefinition>>,
}

/// A message as a model reads it.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelMessage {
    /// A person's words, or a note of the server.
    User(String),
    /// What the model said, one step of it.
    Assistant {
        /// Its words.
        text: String,
        /// The calls it made.
        calls: Vec<ModelCall>,
        /// Which model that was.
        speaker: Speaker,
    },
    /// The answer to one call.
    Tool {
        /// The call, by the id the model knows.
        call_id: String,
        /// The tool.
        tool_name: String,
        /// The answer.
        text: String,
    },
}

/// Which model said something.
#[derive(Debug, Clone, PartialEq)]
pub enum Speaker {
    /// One of the same [`LanguageModel::origin`] as the one that is asked.
    Same {
        /// What it wants back with it, as it gave it.
        provider_state: Option<Value>,
    },
    /// Another one.
    Another,
}

/// A call as a model reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// The id the model knows.
    pub id: String,
    /// The tool.
    pub tool_name: String,
    /// The inputs.
    pub input: Input,
}

/// A tool as a model reads it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What it takes: a JSON Schema.
    pub input_schema: Value,
}

/// One thing a model says. Calls are told apart by `index`, which is this stream's own count.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// Nothing is said, but it is there: it has not been silent.
    Alive,
    /// More words.
    Text(String),
    /// More thoughts.
    Reasoning(String),
    /// A page of the web that the words go back to. The same one is told once a step; one whose address is not of `http`
    /// or `https`, or longer than 2048 bytes, is left out.
    Source {
        /// Its address.
        url: String,
        /// Its title, where it has one.
        title: Option<String>,
    },
    /// A file that the model made. With the words of its step it may have 4 MiB as Base64.
    File {
        /// What kind of file it is: `image/png`.
        media_type: String,
        /// What is in it.
        data: Vec<u8>,
    },
    /// A call begins.
    CallStarted {
        /// Which call of this stream.
        index: usize,
        /// The provider's id, empty if it has none.
        provider_call_id: String,
        /// The tool.
        tool_name: String,
    },
    /// More of a call's arguments.
    CallArguments {
        /// Which call of this stream.
        index: usize,
        /// The next piece of JSON text.
        delta: String,
    },
    /// The call's arguments have ended. One whose arguments have not when the stream ends never was.
    CallFinished {
        /// Which call of this stream.
        index: usize,
    },
    /// The answer is whole. Always the last event.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// What it cost, where the provider tells.
        usage: Option<Usage>,
        /// What the provider wants back with this step.
        provider_state: Option<Value>,
    },
}

/// Why a model gave no whole answer. The texts are for the log; clients get the kind.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// It cannot be had now; asking again may help.
    #[error("the model's server cannot be had now: {why}")]
    Unavailable {
        /// What it said, or what is in the way.
        why: String,
        /// How long it wants to be left alone, where it says so.
        retry_after: Option<Duration>,
    },
    /// It said no, and would again.
    #[error("the model's server failed: {0}")]
    Upstream(String),
    /// It broke off, or said what cannot be read.
    #[error("the model's server sent a malformed answer: {0}")]
    Malformed(String),
}
