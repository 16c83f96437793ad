//! Models on remote servers: one HTTP request, one streamed answer.
//!
//! A [`Wire`] is a protocol of model servers. The file of a wire has four parts: the constant `WIRE` with all facts about
//! its servers, a writer of the request body from the conversation, a reader that turns the events of the stream into
//! [`ModelEvent`]s, and the module `tests` with the sample that the tests of all wires compare. The list [`WIRES`] is the
//! only other place that knows the wire: the configuration and its page take names and addresses from there. The wires share
//! these modules:
//!
//! - `transport` sends requests, and separates unavailable servers from refused requests. The key goes only
//!   into the request: no error text and no `Debug` output contains it.
//! - `conversation` prepares the conversation for all wires, with names and ids that servers accept.
//! - `holdpoint_egress::Frames` splits the bytes into events.
//! - `lenient` reads JSON whose types are odd but clear.
//! - `answer` collects the content of the answer. Wires add text and calls, and the end is the same for all
//!   wires. `kept` collects what the server wants back and the wire does not know.
//! - `failure` reads the errors inside a response.
//!
//! The conversation is sent as it is stored, in its order. The form of a message depends only on that
//! message. So sent bytes never change, and prompt caches work.
//!
//! No client library does this: such libraries assemble answers and repair histories. The id of a call is needed when
//! the call begins, and a provider's items have to return byte for byte.

mod answer;
mod anthropic;
mod context;
mod conversation;
mod failure;
#[cfg(test)]
mod fuzz;
mod gemini;
mod kept;
mod lenient;
mod names;
mod ollama;
mod openai;
mod openai_message;
mod responses;
mod schema;
#[cfg(test)]
mod tests;
mod transport;
mod written;

use super::{LanguageModel, ModelError, ModelEvent, ModelRequest, ToolDefinition};
use crate::provider::Provider;
use answer::{Answer, AnswerReader};
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use holdpoint_core::json::surrogates;
use holdpoint_egress::{BrokenStream, ERROR, Frame, Frames, Framing};
use names::SentNames;
use parking_lot::Mutex;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Request, Url};
use schema::{SchemaRules, WireTool};
use secrecy::{ExposeSecret, SecretString};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use transport::Http;
use written::WrittenTools;

/// The wires. A new wire is a file beside the others and an entry here. The page of the configuration has this order.
pub const WIRES: [Wire; 5] = [openai::WIRE, responses::WIRE, anthropic::WIRE, gemini::WIRE, ollama::WIRE];

/// The protocol of a model server.
#[derive(Clone, Copy)]
pub struct Wire {
    /// The value of `model.provider` that chooses the wire.
    provider: Provider,
    /// The path of a request below the base URL. `{model}` is the place of the model's name.
    path: &'static str,
    /// The header with the key, and the text before the key.
    key_header: (&'static str, &'static str),
    /// Further headers of each request.
    headers: &'static [(&'static str, &'static str)],
    framing: Framing,
    /// The tools that its servers accept.
    tools: &'static SchemaRules,
    /// Writes a tool of a request.
    write_tool: fn(WireTool<'_>) -> Value,
    /// Writes the body of a request to this model.
    body: fn(model: &str, request: &ModelRequest, tools: &WrittenTools) -> Map<String, Value>,
    /// Returns the reader of one answer.
    reading: fn() -> Box<dyn AnswerReader>,
    /// What the tests of all wires compare.
    #[cfg(test)]
    sample: tests::Sample,
}

impl Provider {
    /// Returns all providers.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::SCRIPTED).chain(WIRES.map(|wire| wire.provider))
    }
}

impl<'de> Deserialize<'de> for Provider {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known: Vec<_> = Self::all().map(|provider| format!("`{}`", provider.name)).collect();
        let unknown = || D::Error::custom(format_args!("expected one of {}, not {name:?}", known.join(", ")));
        Self::all().find(|provider| provider.name == name).ok_or_else(unknown)
    }
}

impl Wire {
    /// Returns the wire with this name in the configuration, such as `anthropic`.
    pub fn by_name(name: &str) -> Option<Self> {
        WIRES.into_iter().find(|wire| wire.as_str() == name)
    }

    /// Returns the name of the wire in the configuration.
    pub const fn as_str(self) -> &'static str {
        self.provider.as_str()
    }

    fn written_tools(self) -> WrittenTools {
        WrittenTools::new(self.tools, self.write_tool)
    }

    fn url(self, base_url: &str, model: &str) -> String {
        format!("{}{}", base_url.trim_end_matches('/'), self.path.replace("{model}", model))
    }

    fn headers(self, key: Option<&str>) -> Result<HeaderMap, RemoteError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            let (name, scheme) = self.key_header;
            let value = HeaderValue::from_str(&format!("{scheme}{key}"));
            let mut value = value.map_err(|_| RemoteError::ApiKey)?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        for (name, value) in self.headers {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        Ok(headers)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wire").field(&self.as_str()).finish()
    }
}

/// The settings of a remote model.
#[derive(Debug, Clone)]
pub struct RemoteConfig {
    /// The protocol.
    pub wire: Wire,
    /// The name of the model, sent unchanged. Clients choose the model by the same name.
    pub id: String,
    /// The address of the server, with its `/v1`. Defaults to the address of the wire's own servers.
    pub base_url: Option<String>,
    /// The key. Local servers often need none.
    pub api_key: Option<SecretString>,
    /// Fields of the request body that the operator adds or replaces. `null` removes a field.
    pub options: Map<String, Value>,
    /// The longest pause within an answer. A server that has given the reason of the end, and sends nothing
    /// more for half of it, has ended its answer.
    pub idle_timeout: Duration,
}

/// The error of invalid settings. The text contains neither the URL nor the key.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// An invalid `base_url`.
    #[error("{0}")]
    BaseUrl(&'static str),
    /// An invalid `api_key`.
    #[error("the key has characters that a header cannot carry")]
    ApiKey,
    /// The HTTP client cannot be created.
    #[error("{0}")]
    Client(String),
}

/// The most notes about tools in the log.
const NOTED_MAX: usize = 256;

/// A model on a remote server.
pub struct Remote {
    wire: Wire,
    id: String,
    origin: String,
    url: Url,
    headers: HeaderMap,
    options: Map<String, Value>,
    idle_timeout: Duration,
    http: Http,
    tools: WrittenTools,
    /// What the log says about tools already, so that it says so once.
    noted: Mutex<BTreeSet<String>>,
}

impl Remote {
    /// Prepares the client and sends nothing. Installs ring as the TLS provider of the process if it has
    /// none.
    ///
    /// # Errors
    /// The base URL is missing, or is not a plain HTTP URL. The key contains characters that a header cannot
    /// carry.
    pub fn new(config: RemoteConfig) -> Result<Self, RemoteError> {
        let RemoteConfig { wire, id, base_url, api_key, options, idle_timeout } = config;
        let base_url = base_url.as_deref().or(wire.provider.default_base_url());
        let base_url = base_url.ok_or(RemoteError::BaseUrl("the URL is missing"))?;
        let unreadable = |_| RemoteError::BaseUrl("it is not a valid URL");
        let base = Url::parse(base_url).map_err(unreadable)?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(RemoteError::BaseUrl("it is not an HTTP URL"));
        }
        // The path of the wire is appended to the URL. A secret in the URL would not be protected like the
        // key.
        let bare = base.query().is_none() && base.fragment().is_none();
        if !bare || !base.username().is_empty() || base.password().is_some() {
            return Err(RemoteError::BaseUrl("it has a query, a fragment or a password"));
        }
        let url = Url::parse(&wire.url(base_url, &id)).map_err(unreadable)?;

        let key = api_key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty());
        let headers = wire.headers(key)?;
        let origin = format!("{} {url} {id}", wire.as_str());
        let http = Http::new(&url, api_key).map_err(RemoteError::Client)?;
        let (tools, noted) = (wire.written_tools(), Mutex::default());
        Ok(Self { wire, id, origin, url, headers, options, idle_timeout, http, tools, noted })
    }

    /// Names the tools that the servers of the wire refuse, in the log.
    fn note_tools(&self, tools: &[Arc<ToolDefinition>]) {
        let rules = self.wire.tools;
        let is_new = |what: &str| {
            let mut noted = self.noted.lock();
            noted.len() < NOTED_MAX && noted.insert(what.to_owned())
        };
        for tool in tools.iter().filter(|tool| !rules.accepts_name(&tool.name) && is_new(&tool.name)) {
            let (model, provider) = (self.id.as_str(), self.provider());
            tracing::warn!(
                model,
                provider,
                tool = tool.name,
                "the provider refuses the name of a tool; the model does not get the tool"
            );
        }
        let too_many = rules.tools_max.filter(|most| tools.len() > *most);
        if let Some(most) = too_many.filter(|_| is_new("")) {
            let (model, provider, count) = (self.id.as_str(), self.provider(), tools.len());
            tracing::warn!(
                model,
                provider,
                count,
                most,
                "the provider takes fewer tools in one request; `tools` of `[[mcp]]` chooses some"
            );
        }
    }

    fn request(&self, request: &ModelRequest) -> Request {
        self.note_tools(&request.tools);
        let mut body = (self.wire.body)(&self.id, request, &self.tools);
        for (field, value) in &self.options {
            if value.is_null() {
                body.shift_remove(field);
            } else {
                body.insert(field.clone(), value.clone());
            }
        }
        let mut http = Request::new(reqwest::Method::POST, self.url.clone());
        http.headers_mut().clone_from(&self.headers);
        *http.body_mut() = Some(Value::Object(body).to_string().into());
        http
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("wire", &self.wire).field("id", &self.id).finish_non_exhaustive()
    }
}

impl LanguageModel for Remote {
    fn id(&self) -> &str {
        &self.id
    }

    fn provider(&self) -> &str {
        self.wire.as_str()
    }

    fn origin(&self) -> &str {
        &self.origin
    }

    fn stream(&self, request: &ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
        let (request, names) = SentNames::of(request, self.wire.tools);
        let (http, request, wire) = (self.http.clone(), self.request(&request), self.wire);
        let last_words = self.idle_timeout / 2;
        let answer = {
            let http = http.clone();
            async move {
                let response = http.send(request, wire.framing).await?;
                let other_type = transport::other_type(&response, wire.framing);
                Ok::<_, ModelError>(events(wire, response.bytes_stream(), other_type, last_words))
            }
        };
        // Boxed, so that its memory is free when the answer begins.
        let read = stream::once(Box::pin(answer)).try_flatten().map_ok(move |event| names.read(event));
        read.map_err(move |error| http.harmless(error)).boxed()
    }
}

/// The longest answer, in bytes of its events: about 150,000 tokens on the most verbose wire. The reader
/// holds the state for the server until the end, so an endless answer must fail.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The name of an event without a name (WHATWG HTML, "Server-sent events").
const DEFAULT_NAME: &str = "message";
/// The time after the last content in which the server may end its stream, so that the connection can be
/// reused.
const LINGER: Duration = Duration::from_millis(100);

impl From<BrokenStream> for ModelError {
    fn from(broken: BrokenStream) -> Self {
        Self::Malformed(match broken {
            BrokenStream::Stream(why) => why,
            BrokenStream::Event(why) => why.to_owned(),
        })
    }
}

/// Returns the events of a byte stream on this wire. `other_type` is the type of a response that does not call
/// itself a stream. `last_words` is the time after the reason of the end in which the server may add something.
fn events(
    wire: Wire,
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    other_type: Option<String>,
    last_words: Duration,
) -> impl Stream<Item = Result<ModelEvent, ModelError>> {
    // Boxed, because each event moves it.
    let exchange = Box::new(Exchange {
        frames: Frames::new(bytes, wire.framing),
        other_type,
        last_words,
        ends_at: None,
        bytes: 0,
        reading: (wire.reading)(),
        answer: Answer::default(),
    });
    stream::try_unfold(exchange, Exchange::next)
}

/// An answer and its source.
struct Exchange {
    frames: Frames,
    other_type: Option<String>,
    last_words: Duration,
    /// The time at which an answer with a reason ends, if the server adds nothing.
    ends_at: Option<Instant>,
    /// The number of event bytes that were read.
    bytes: usize,
    reading: Box<dyn AnswerReader>,
    answer: Answer,
}

impl Exchange {
    /// Returns the next event and the rest of the answer. Returns `None` after the last event.
    async fn next(mut self: Box<Self>) -> Result<Option<(ModelEvent, Box<Self>)>, ModelError> {
        loop {
            if let Some(event) = self.answer.events.pop_front() {
                return Ok(Some((event, self)));
            }
            if self.answer.has_ended() {
                let drained = async { while self.frames.next().await.is_some_and(|frame| frame.is_ok()) {} };
                let _in_time = tokio::time::timeout(LINGER, drained).await;
                return Ok(None);
            }
            match self.frame().await {
                // No content was emitted, so a retry is possible.
                Some(Err(BrokenStream::Stream(why))) if !self.answer.has_content() => {
                    return Err(ModelError::Unavailable { why, retry_after: None });
                }
                Some(frame) => {
                    self.read(frame?)?;
                    if self.answer.events.is_empty() && !self.answer.is_over() {
                        return Ok(Some((ModelEvent::Alive, self)));
                    }
                }
                None => self.end()?,
            }
        }
    }

    /// Returns the next frame. Returns `None` at the end of the answer.
    async fn frame(&mut self) -> Option<Result<Frame, BrokenStream>> {
        if self.answer.is_over() {
            return None;
        }
        match self.ends_at {
            // The answer is complete. A broken stream does not matter any more, nor does one without an end.
            Some(end) => {
                let last = tokio::time::timeout_at(end, self.frames.next()).await;
                last.ok().flatten().filter(Result::is_ok)
            }
            None => self.frames.next().await,
        }
    }

    fn read(&mut self, frame: Frame) -> Result<(), ModelError> {
        match frame {
            Frame::Comment => return Ok(()),
            Frame::Event { name, data } => {
                self.count(&data)?;
                self.event(&name, &data)?;
            }
            Frame::Document(document) => {
                self.count(&document)?;
                self.document(&document)?;
            }
        }
        if self.answer.has_changed() {
            let end = Instant::now().checked_add(self.last_words);
            self.ends_at = if self.answer.is_complete() { end } else { None };
        }
        Ok(())
    }

    fn count(&mut self, data: &str) -> Result<(), ModelError> {
        self.bytes = self.bytes.saturating_add(data.len());
        if self.bytes > ANSWER_BYTES_MAX {
            return Err(ModelError::Malformed(format!("more than {ANSWER_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn event(&mut self, name: &str, data: &str) -> Result<(), ModelError> {
        match data.trim() {
            "[DONE]" => {
                self.answer.over();
                return Ok(());
            }
            "" | "\"\"" | "null" => return Ok(()),
            _ => {}
        }
        if name == ERROR {
            return Err(failure::in_text(data));
        }
        let name = Some(name).filter(|name| !name.is_empty() && *name != DEFAULT_NAME);
        let marked = surrogates::marked(data);
        self.answer.has_marks |= matches!(marked, std::borrow::Cow::Owned(_));
        self.reading.read(name, &marked, &mut self.answer)
    }

    /// Reads a document in place of a stream: an answer that is not streamed, a list of events, or an error.
    fn document(&mut self, document: &str) -> Result<(), ModelError> {
        let read = match serde_json::from_str::<Vec<Box<RawValue>>>(document) {
            Ok(events) => events.iter().try_for_each(|event| self.event("", event.get())),
            Err(_) => self.event("", document),
        };
        if !self.answer.has_content() && !self.answer.has_reason() {
            return Err(failure::in_text(document));
        }
        self.answer.over();
        read
    }

    fn end(&mut self) -> Result<(), ModelError> {
        if let Some(kind) = self.other_type.take()
            && self.frames.has_other_lines()
            && !self.answer.has_content()
        {
            return Err(ModelError::Upstream(format!("it answered with {kind}, not with a stream")));
        }
        let Self { answer, reading, .. } = self;
        answer.end(|answer| reading.state(answer))
    }
}
