//! Messages, and the steps an assistant's message is made of.

use super::call::{ToolCall, cut, without_nul};
use super::clock::Timestamp;
use super::id::{MessageId, RunId, ThreadId, ToolCallId};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use url::Url;

/// Longest address of a source, in bytes.
const URL_BYTES_MAX: usize = 2048;
/// Longest title of a source, in bytes.
const TITLE_BYTES_MAX: usize = 512;
/// Longest media type of a file, in bytes.
const MEDIA_TYPE_BYTES_MAX: usize = 128;

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
    /// A page of the web that the words go back to.
    Source(Source),
    /// A file that the model made.
    File(File),
}

/// A page of the web that a model names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// Its address, of `http` or `https`; it stands for the source wherever that needs an id.
    pub(crate) url: String,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
}

impl Source {
    /// The source that a model names so. `None` where pages would make a link of it that leads anywhere but to the web.
    pub(crate) fn new(url: &str, title: Option<String>) -> Option<Self> {
        let url = Some(url).filter(|url| url.len() <= URL_BYTES_MAX).and_then(|url| Url::parse(url).ok())?;
        // As a browser reads it, so that nothing hides in how it is written.
        let url = Some(url).filter(|url| matches!(url.scheme(), "http" | "https")).map(String::from)?;
        let title = title.map(|title| cut(without_nul(title.trim()), TITLE_BYTES_MAX));
        Some(Self { url, title: title.filter(|title| !title.is_empty()) })
    }
}

/// A file that a model made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    /// A `data:` URL of all that is in it.
    pub(crate) url: String,
    /// What kind of file it is.
    pub(crate) media_type: String,
}

impl File {
    /// The file of this kind with these bytes. `None` where that is no kind, or there is nothing in it.
    pub(crate) fn new(media_type: &str, bytes: &[u8]) -> Option<Self> {
        // RFC 6838, 4.2. Parameters say nothing that a page asks for.
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

    /// What is in it, as Base64.
    pub(crate) fn base64(&self) -> &str {
        self.url.split_once(',').map_or("", |(_, data)| data)
    }
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
