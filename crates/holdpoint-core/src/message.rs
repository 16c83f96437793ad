//! Messages, and the steps of an assistant message.

use super::call::ToolCall;
use super::clock::Timestamp;
use super::id::{MessageId, RunId, ThreadId, ToolCallId};
use super::text::{cut, without_nul};
use crate::vocabulary;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::Url;

/// Maximum length of a source's address, in bytes.
const URL_BYTES_MAX: usize = 2048;
/// Maximum length of a source's title, in bytes.
const TITLE_BYTES_MAX: usize = 512;
/// Maximum length of a file's media type, in bytes.
const MEDIA_TYPE_BYTES_MAX: usize = 128;

/// A message as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The id of the message, minted by the server.
    pub id: MessageId,
    /// The page's own name for the message, if the page gave one.
    pub client_id: Option<String>,
    /// The thread of the message.
    pub thread_id: ThreadId,
    /// The run that this user message started, or that this assistant message belongs to.
    pub run_id: RunId,
    /// The position in the thread.
    pub ordinal: i64,
    /// The content, which also determines the role.
    pub body: Body,
    /// The status of the message.
    pub status: MessageStatus,
    /// The time at which the message was stored.
    pub created_at: Timestamp,
}

/// A user message to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserWords {
    /// The text as the user wrote it.
    pub text: String,
    /// The page's own name for the message.
    pub client_id: Option<String>,
}

impl Message {
    /// Returns the steps of an assistant message. A user message has none.
    pub fn steps(&self) -> &[Step] {
        match &self.body {
            Body::User(_) => &[],
            Body::Assistant(steps) => steps,
        }
    }

    /// Returns the calls of the message, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.steps().iter().flat_map(|step| &step.calls)
    }
}

/// The content of a message, by role.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// The text of a user message.
    User(String),
    /// The steps of an assistant message, in order.
    Assistant(Vec<Step>),
}

vocabulary! {
    /// The author of a message.
    pub enum Role as "MessageRole" {
        /// The user.
        User = "user",
        /// The model, with its tools.
        Assistant = "assistant",
    }

    /// The status of a message. `streaming`: a turn is writing it. `interrupted`: the turn ended before the message was
    /// complete. `superseded`: an edit or another response replaced it.
    pub enum MessageStatus {
        /// The message is whole, or it ends with a hold.
        Complete = "complete",
        /// A turn is writing the message.
        Streaming = "streaming",
        /// The turn ended early. A continuation writes the next step of the message.
        Interrupted = "interrupted",
        /// An edit or a regenerate replaced the message. The message is kept, but neither shown nor sent to the
        /// model.
        Superseded = "superseded",
    }

    /// Whether a step was written whole.
    pub enum StepStatus {
        /// A turn is writing the step.
        Streaming = "streaming",
        /// The step is whole. Its calls are stored with it.
        Complete = "complete",
        /// The step broke off. Pages show it; the model never receives it.
        Interrupted = "interrupted",
    }
}

impl Body {
    /// Returns the author of a message with this content.
    pub const fn role(&self) -> Role {
        match self {
            Self::User(_) => Role::User,
            Self::Assistant(_) => Role::Assistant,
        }
    }
}

/// One model call and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The position in the message, from 0.
    pub n: i32,
    /// Whether the step was written whole, and so may be sent to the model again.
    pub status: StepStatus,
    /// The parts of the answer, in order.
    pub parts: Vec<Part>,
    /// The calls that the parts name, in order.
    pub calls: Vec<ToolCall>,
    /// The tokens read and written, if the provider reports them.
    pub usage: Option<Usage>,
    /// The origin of the model that produced the step.
    pub origin: Option<String>,
    /// State that this origin needs back unchanged: thought signatures, item ids.
    pub provider_state: Option<serde_json::Value>,
    /// What the request left out of a long conversation.
    pub window: Window,
    /// The time at which the step was opened.
    pub created_at: Timestamp,
}

/// The part of a long conversation that the model did not get with a step. A turn is a message of the user with all that
/// follows up to the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Window {
    /// How many of the oldest turns are left out, but for those with an outcome that the model has yet to read.
    pub left_out: usize,
    /// Of how many of the oldest turns the results are shortened.
    pub shortened: usize,
    /// The fewest tokens of a longer request that the server refused.
    pub refused: Option<u64>,
}

impl Window {
    /// Returns the window that is as narrow as both.
    pub fn narrowed_by(self, other: Self) -> Self {
        Self {
            left_out: self.left_out.max(other.left_out),
            shortened: self.shortened.max(other.shortened),
            refused: self.refused.into_iter().chain(other.refused).min(),
        }
    }
}

/// A part of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text for the user.
    Text {
        /// The text.
        text: String,
    },
    /// The model's reasoning, if the provider reveals it.
    Reasoning {
        /// The reasoning.
        text: String,
    },
    /// A reference to a call.
    ToolCall {
        /// The id of the call.
        tool_call_id: ToolCallId,
    },
    /// A web page that the text cites.
    Source(Source),
    /// A file that the model created.
    File(File),
}

/// A web page that a model cites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The `http` or `https` address. It also identifies the source.
    pub url: String,
    /// The title.
    pub title: Option<String>,
}

impl Source {
    /// Creates the source for this address and title. `None` if the address is too long, or is not an `http`
    /// or `https` URL: pages render the address as a link.
    pub fn new(url: &str, title: Option<String>) -> Option<Self> {
        let url = Some(url).filter(|url| url.len() <= URL_BYTES_MAX).and_then(|url| Url::parse(url).ok())?;
        // The parsed form, as a browser reads it, so that no spelling hides another target.
        let url = Some(url).filter(|url| matches!(url.scheme(), "http" | "https")).map(String::from)?;
        let title = title.map(|title| cut(without_nul(title.trim()), TITLE_BYTES_MAX));
        Some(Self { url, title: title.filter(|title| !title.is_empty()) })
    }
}

/// A file that a model created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// A `data:` URL with the whole content.
    pub url: String,
    /// The media type.
    pub media_type: String,
}

impl File {
    /// Creates the file with this media type and these bytes. `None` if the media type is invalid or there
    /// are no bytes.
    pub fn new(media_type: &str, bytes: &[u8]) -> Option<Self> {
        // RFC 6838, 4.2. The parameters are dropped; pages do not need them.
        let named = |name: &str| {
            let allowed = |c: u8| c.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&c);
            !name.is_empty() && name.bytes().all(allowed)
        };
        let media_type = media_type.split(';').next().map(str::trim)?.to_ascii_lowercase();
        let (kind, of) = media_type.split_once('/')?;
        if media_type.len() > MEDIA_TYPE_BYTES_MAX || !named(kind) || !named(of) || bytes.is_empty() {
            return None;
        }
        Some(Self { url: format!("data:{media_type};base64,{}", STANDARD.encode(bytes)), media_type })
    }

    /// Returns the content as Base64.
    pub fn base64(&self) -> &str {
        self.url.split_once(',').map_or("", |(_, data)| data)
    }
}

/// The tokens of one model call, or of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
}

impl Usage {
    /// Returns the sum, saturating.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
        }
    }
}
