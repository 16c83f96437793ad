//! Any server with `{base_url}/chat/completions`.
//!
//! rig writes the request around the conversation, reads the stream and ends it where it must. Three things
//! go past it or are put right before it sees them:
//!
//! - The messages and tools. rig repairs histories: it joins user messages that follow each other, turns
//!   calls and answers into prose when no tool is offered, cuts long call ids, fills empty answers. What the
//!   model reads must be what is stored, so they are written here and handed over as raw parameters.
//! - The bytes. rig's own client cannot be given a connect time-out or be kept from following redirects.
//! - The pieces of calls, see `Pieces`.

use super::{LanguageModel, ModelCall, ModelError, ModelEvent, ModelMessage, ModelRequest, ToolDefinition};
use crate::domain::call::cut;
use crate::domain::message::Usage;
use crate::domain::turn::FinishReason;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use reqwest::header::{self, HeaderValue};
use rig_core::completion::{self, CompletionRequest};
use rig_core::driver::{Exchange, Model, Opened, Opening, Transport};
use rig_core::error::ProviderError;
use rig_core::http_client::framing::SseFramer;
use rig_core::message::AssistantContent;
use rig_core::operation::Completion;
use rig_core::providers::openai::OpenAIConfig;
use rig_core::providers::openai::wire::{Auth, Chat};
use rig_core::streaming::{Item, Part, PartKind, StreamEvent, Streamed};
use rig_core::wire::{Body, Encoded, WireFrame};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A server that does not take the connection by then is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No server has a reason to send more in one event; without a limit one without an end fills the memory.
const EVENT_BYTES_MAX: usize = 4 << 20;
/// How much of a refusal is read to find the server's own words.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Enough of them to know what is wrong.
const WORDS_BYTES_MAX: usize = 500;

/// Which server, and which of its models.
#[derive(Debug, Clone)]
pub struct OpenAiConfig {
    /// The model's name, sent as it is; clients choose it by the same name.
    pub id: String,
    /// Where the server is, with its `/v1`.
    pub base_url: String,
    /// The key, sent as a bearer token; local servers often have none.
    pub api_key: Option<SecretString>,
}

/// A model behind `{base_url}/chat/completions`.
pub struct OpenAi {
    model: Model<Chat, Http>,
    api_key: Option<SecretString>,
}

impl OpenAi {
    /// Prepares the client; nothing is sent. A TLS provider has to be installed for the process before
    /// (`rustls::crypto::ring::default_provider().install_default()`), also for plain HTTP.
    ///
    /// # Errors
    /// The base URL is not a plain one of HTTP, the key cannot stand in a header, or there is no TLS provider.
    /// Neither the URL nor the key is in the text.
    pub fn new(config: OpenAiConfig) -> Result<Self, ModelError> {
        let OpenAiConfig { id, base_url, api_key } = config;
        let unfit = |what: &str| ModelError::Upstream(format!("not usable: {what}"));

        let url = reqwest::Url::parse(&base_url).map_err(|_| unfit("the base URL cannot be read"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(unfit("the base URL is not one of HTTP"));
        }
        // A path is put behind it, and a secret in it would get around the care taken of the key.
        let bare = url.query().is_none() && url.fragment().is_none();
        if !bare || !url.username().is_empty() || url.password().is_some() {
            return Err(unfit("the base URL has a query, a fragment or a password"));
        }
        let key = api_key.as_ref().map_or("", |key| key.expose_secret());
        HeaderValue::from_str(key).map_err(|_| unfit("the API key has characters no header can carry"))?;

        // reqwest panics without one.
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            return Err(unfit("no TLS provider is installed"));
        }
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // The conversation goes to the host that was configured and to no other.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| unfit(&chain(error)))?;
        let wire = OpenAIConfig::new(key).with_base_url(base_url).with_auth(Auth::OptionalBearer).chat(id);
        Ok(Self { model: Model::new(wire, Http(client)), api_key })
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi").field("id", &self.model.wire.model).finish_non_exhaustive()
    }
}

impl LanguageModel for OpenAi {
    fn id(&self) -> &str {
        &self.model.wire.model
    }

    fn provider(&self) -> &str {
        "openai"
    }

    fn stream(&self, request: ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
        let api_key = self.api_key.clone();
        match self.model.stream(question(request)) {
            Ok(reply) => {
                let (calls, ending) = (Vec::new(), Vec::new().into_iter());
                let answer = Answer { reply: Some(reply), calls, ending, api_key };
                stream::try_unfold(answer, Answer::next).boxed()
            }
            Err(error) => stream::iter([Err(failure(error, api_key.as_ref()))]).boxed(),
        }
    }
}

/// The request as rig takes it.
fn question(request: ModelRequest) -> CompletionRequest {
    let ModelRequest { system, messages, tools } = request;
    let system = system.map(|text| object([("role", "system".into()), ("content", text.into())]));
    let messages = system.into_iter().chain(messages.into_iter().map(message)).collect();
    let mut raw = vec![("messages", Value::Array(messages))];
    if !tools.is_empty() {
        raw.push(("tools", tools.iter().map(|definition| tool(definition)).collect()));
    }
    // rig wants a prompt; `messages` takes its place.
    CompletionRequest::new("-").additional_params(raw.into_iter().collect::<Value>())
}

fn message(message: ModelMessage) -> Value {
    match message {
        ModelMessage::User(text) => object([("role", "user".into()), ("content", text.into())]),
        ModelMessage::Assistant { text, calls, provider_state: _ } => {
            // `null` where there are calls only: some servers put an empty text into the model's prompt.
            let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
            let mut said = vec![("role", "assistant".into()), ("content", content)];
            if !calls.is_empty() {
                said.push(("tool_calls", calls.into_iter().map(call).collect()));
            }
            said.into_iter().collect()
        }
        ModelMessage::Tool { call_id, tool_name: _, text } => {
            object([("role", "tool".into()), ("tool_call_id", call_id.into()), ("content", text.into())])
        }
    }
}

fn call(call: ModelCall) -> Value {
    let arguments = Value::Object(call.input).to_string();
    let function = object([("name", call.tool_name.into()), ("arguments", arguments.into())]);
    object([("id", call.id.into()), ("type", "function".into()), ("function", function)])
}

fn tool(tool: &ToolDefinition) -> Value {
    let function = object([
        ("name", tool.name.as_str().into()),
        ("description", tool.description.as_str().into()),
        ("parameters", tool.input_schema.clone()),
    ]);
    object([("type", "function".into()), ("function", function)])
}

/// Unlike `json!` this moves the values: histories are long.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    fields.into_iter().collect()
}

/// An answer while it is read.
struct Answer {
    /// None when it has been read.
    reply: Option<Streamed<Completion>>,
    calls: Vec<Call>,
    /// What is left to say then.
    ending: std::vec::IntoIter<ModelEvent>,
    api_key: Option<SecretString>,
}

/// A call while it is read; its index is its place.
struct Call {
    part: Part,
    id: String,
    /// Whether the model wrote arguments. rig makes `{}` of none; a model's own `{}` looks the same.
    written: bool,
    /// Whether they are an object.
    readable: bool,
    ended: bool,
}

impl Answer {
    async fn next(mut self) -> Result<Option<(ModelEvent, Self)>, ModelError> {
        loop {
            let Some(reply) = &mut self.reply else {
                return Ok(self.ending.next().map(|event| (event, self)));
            };
            match reply.next().await {
                Some(Ok(Item::Event(event))) => {
                    if let Some(event) = self.event(event) {
                        return Ok(Some((event, self)));
                    }
                }
                // A server's extension.
                Some(Ok(Item::Unknown(_))) => {}
                Some(Err(error)) => return Err(failure(error, self.api_key.as_ref())),
                None => self.end().await?,
            }
        }
    }

    fn event(&mut self, event: StreamEvent) -> Option<ModelEvent> {
        match event {
            StreamEvent::Start { part, kind: PartKind::ToolCall, name: Some(name) } => {
                let (tool_name, id) = name.as_str().split_once(ID_FOLLOWS).unwrap_or((name.as_str(), ""));
                // An id that an earlier call has names nothing.
                let id = if self.calls.iter().any(|call| call.id == id) { "" } else { id };
                let index = self.calls.len();
                self.calls.push(Call { part, id: id.into(), written: false, readable: true, ended: false });
                Some(ModelEvent::CallStarted {
                    index,
                    provider_call_id: id.to_owned(),
                    tool_name: tool_name.to_owned(),
                })
            }
            StreamEvent::Text { text, .. } => Some(ModelEvent::Text(text)),
            StreamEvent::Reasoning { text, .. } => Some(ModelEvent::Reasoning(text)),
            StreamEvent::Arguments { part, json } => {
                let (index, call) = self.call(part)?;
                call.written |= json != "{}";
                Some(ModelEvent::CallArguments { index, delta: json })
            }
            StreamEvent::End { part, content: AssistantContent::ToolCall(content) } => {
                let (index, call) = self.call(part)?;
                call.ended = true;
                let unreadable = content.function.invalid_arguments?;
                call.readable = false;
                // rig takes `n`, `nu` and `nul` for a `null` to come, holds them back and makes `{}` of them.
                // Put behind that, they make the arguments as unreadable as they were.
                "null"
                    .starts_with(unreadable.trim())
                    .then_some(ModelEvent::CallArguments { index, delta: unreadable })
            }
            StreamEvent::Start { .. } | StreamEvent::End { .. } => None,
        }
    }

    fn call(&mut self, part: Part) -> Option<(usize, &mut Call)> {
        self.calls.iter_mut().enumerate().rfind(|(_, call)| call.part == part)
    }

    /// The server has ended its answer. Calls are told finished only here: whether one is whole depends on how
    /// the answer ended.
    async fn end(&mut self) -> Result<(), ModelError> {
        let Some(reply) = self.reply.take() else { return Ok(()) };
        let response = reply.finish().await.map_err(|error| failure(error, self.api_key.as_ref()))?;
        let calls = std::mem::take(&mut self.calls);
        let reason = match response.finish_reason() {
            Some(completion::FinishReason::Stop) => FinishReason::Stop,
            Some(completion::FinishReason::Length) => FinishReason::Length,
            Some(completion::FinishReason::ContentFilter) => FinishReason::ContentFilter,
            Some(completion::FinishReason::ToolCalls) if calls.is_empty() => {
                return Err(ModelError::Malformed("it ended for calls and made none".to_owned()));
            }
            Some(completion::FinishReason::ToolCalls) => FinishReason::ToolCalls,
            Some(completion::FinishReason::Other(reason)) if reason == "error" => {
                return Err(ModelError::Upstream("it ended its answer with an error".to_owned()));
            }
            Some(_) => FinishReason::Other,
            None => return Err(ModelError::Malformed("it gave no finish reason".to_owned())),
        };
        // In an answer that was cut, so were arguments that are unreadable, or that the last call lacks. In any
        // other the model meant them, and it is for others to say what is wrong with them.
        let cut = matches!(reason, FinishReason::Length | FinishReason::ContentFilter);
        let last = calls.len().saturating_sub(1);
        let finished = calls.iter().enumerate().filter(|(index, call)| {
            call.ended && (!cut || call.readable && (call.written || *index != last))
        });
        let mut events: Vec<_> = finished.map(|(index, _)| ModelEvent::CallFinished { index }).collect();

        let (input, output) = (response.usage.input_tokens, response.usage.output_tokens);
        let told = input.is_some() || output.is_some();
        let usage = Usage { input_tokens: input.unwrap_or(0), output_tokens: output.unwrap_or(0) };
        events.push(ModelEvent::Finished { reason, usage: told.then_some(usage), provider_state: None });
        self.ending = events.into_iter();
        Ok(())
    }
}

/// Sends rig's requests and cuts the answers into its frames.
#[derive(Clone)]
struct Http(reqwest::Client);

impl Transport<Chat> for Http {
    fn send(&self, payload: Encoded, _: Exchange) -> Opening<WireFrame> {
        let client = self.0.clone();
        let unreached = |error| ProviderError::Provider(chain(error));
        Opening::new(async move {
            // The other kind is for uploads.
            let bytes = |body| if let Body::Bytes(bytes) = body { bytes } else { Vec::new() };
            let request = payload.request.map(bytes);
            let mut request = reqwest::Request::try_from(request).map_err(unreached)?;
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
            let response = client.execute(request).await.map_err(unreached)?;
            if response.status() != 200 {
                return Err(refusal(response).await);
            }
            let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            match kind {
                Some(kind) if !kind.to_ascii_lowercase().starts_with("text/event-stream") => {
                    Err(ProviderError::Provider(format!("it answered with {kind}, not with a stream")))
                }
                _ => Ok(Opened::new(frames(response))),
            }
        })
    }
}

fn frames(response: reqwest::Response) -> impl Stream<Item = Result<WireFrame, ProviderError>> {
    let state = (response, SseFramer::new(), VecDeque::new(), Pieces::default());
    stream::try_unfold(state, |(mut response, mut framer, mut ready, mut pieces)| async move {
        loop {
            if let Some(data) = ready.pop_front() {
                let frame = pieces.frame(data).map_err(|error| match error {
                    ModelError::Upstream(said) => ProviderError::Provider(said),
                    ModelError::Malformed(said) => ProviderError::Response(said),
                })?;
                return Ok(Some((frame, (response, framer, ready, pieces))));
            }
            let broken = |error| ProviderError::Response(format!("the connection broke: {}", chain(error)));
            let Some(chunk) = response.chunk().await.map_err(broken)? else {
                return Ok(None);
            };
            ready.extend(framer.push(&chunk).map(|event| event.data).filter(|data| !data.trim().is_empty()));
            if framer.pending() > EVENT_BYTES_MAX {
                return Err(ProviderError::Response("an event of it is too long".to_owned()));
            }
        }
    })
}

/// Stands between a call's name and its id.
const ID_FOLLOWS: char = '\u{1f}';
/// Where the places of calls begin that the server gave none.
const UNPLACED: u64 = 1 << 20;

/// Puts the pieces of calls right before rig puts them together.
///
/// - rig tells a call's id when the call ends, its name when it begins. [`ModelEvent::CallStarted`] has both, so
///   the id travels behind the name.
/// - rig takes arguments that are empty so far for whole ones. A next piece without a place, or with an id of
///   its own, then begins a call without a name, which is dropped, and the call that was meant ends with `{}`.
///   So each piece has a place, and only one with a name has an id.
/// - rig keeps the first name a call has. One that comes in pieces would be another tool's.
#[derive(Default)]
struct Pieces {
    begun: Vec<Begun>,
}

/// A call that has a name.
struct Begun {
    place: u64,
    id: Option<String>,
    name: String,
}

impl Pieces {
    /// An event's data as rig gets it.
    fn frame(&mut self, data: String) -> Result<WireFrame, ModelError> {
        // Nearly every event is a piece of text, and is not parsed here.
        if !data.contains("\"tool_calls\"") && !data.contains("\"error\"") {
            return Ok(WireFrame::Text(data));
        }
        let Ok(mut event) = serde_json::from_str::<Value>(&data) else {
            // rig finds that too, and says what is wrong.
            return Ok(WireFrame::Text(data));
        };
        let failed = match event.get("error") {
            Some(Value::Object(error)) => !error.is_empty(),
            Some(Value::String(error)) => !error.is_empty(),
            _ => event.get("object").is_some_and(|object| object == "error"),
        };
        if failed {
            // rig would log the server's words, and overlook an error beside a choice.
            return Err(ModelError::Upstream(format!("error in the stream: {}", words(&data))));
        }
        let mut changed = false;
        for choice in event.get_mut("choices").and_then(Value::as_array_mut).into_iter().flatten() {
            let said = if choice.get("delta").is_some_and(Value::is_object) { "delta" } else { "message" };
            let pieces = choice.get_mut(said).and_then(|said| said.get_mut("tool_calls"));
            for piece in pieces.and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(piece) = piece {
                    changed |= self.put_right(piece)?;
                }
            }
        }
        Ok(WireFrame::Text(if changed { event.to_string() } else { data }))
    }

    /// Whether it changed the piece.
    fn put_right(&mut self, piece: &mut Map<String, Value>) -> Result<bool, ModelError> {
        fn text(value: Option<&Value>) -> Option<&str> {
            value.and_then(Value::as_str).filter(|text| !text.is_empty())
        }
        // What rig takes for no id is none here.
        let id = text(piece.get("id")).filter(|id| *id != "null").map(str::to_owned);
        let name = text(piece.get("function").and_then(|function| function.get("name"))).map(str::to_owned);

        let given = piece.get("index").and_then(Value::as_u64);
        let place = given.unwrap_or_else(|| self.place(id.as_deref(), name.is_some()));
        let mut changed = given.is_none();
        if changed {
            piece.insert("index".to_owned(), place.into());
        }
        let Some(name) = name else {
            return Ok(piece.remove("id").is_some() || changed);
        };
        if let Some(id) = &id
            && let Some(tagged) = piece.get_mut("function").and_then(|function| function.get_mut("name"))
        {
            *tagged = format!("{name}{ID_FOLLOWS}{id}").into();
            changed = true;
        }
        match self.begun.iter_mut().rfind(|call| call.place == place) {
            Some(call) if id.is_none() || call.id.is_none() || call.id == id => {
                if call.name != name {
                    return Err(ModelError::Malformed("a call of it has two names".to_owned()));
                }
                call.id = call.id.take().or(id);
            }
            // Some servers put one call after the other in the same place.
            Some(call) => *call = Begun { place, id, name },
            None => self.begun.push(Begun { place, id, name }),
        }
        Ok(changed)
    }

    /// Where a piece belongs that does not say so: one with a known id to that call, another one with a name
    /// to a call that begins, any other to the last that began.
    fn place(&self, id: Option<&str>, named: bool) -> u64 {
        let known = self.begun.iter().rfind(|call| id.is_some() && call.id.as_deref() == id);
        let last = if named { None } else { self.begun.last() };
        known.or(last).map_or_else(|| UNPLACED.saturating_add(self.begun.len() as u64), |call| call.place)
    }
}

/// The server's no, with as much of its body as may be needed.
async fn refusal(mut response: reqwest::Response) -> ProviderError {
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    ProviderError::from_http_response(status, String::from_utf8_lossy(&body))
}

/// The error and its causes. Only the first names the URL, and that one leaves it out here.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// What rig says, in our two kinds.
fn failure(error: ProviderError, api_key: Option<&SecretString>) -> ModelError {
    match error {
        ProviderError::ProviderResponse(response) => {
            let said = harmless(&words(&response.body), api_key);
            ModelError::Upstream(match response.status {
                Some(status) => format!("status {}: {said}", status.as_u16()),
                None => format!("error in the stream: {said}"),
            })
        }
        ProviderError::Truncated => ModelError::Malformed("it broke off before its end".to_owned()),
        ProviderError::Json(error) => ModelError::Malformed(harmless(&error.to_string(), api_key)),
        ProviderError::Response(said) => ModelError::Malformed(harmless(&said, api_key)),
        ProviderError::Provider(said) => ModelError::Upstream(harmless(&said, api_key)),
        other => ModelError::Upstream(harmless(&other.to_string(), api_key)),
    }
}

/// The sentence in an error's body, or the body.
fn words(body: &str) -> String {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    let mut places = ["/error/message", "/error", "/message", "/detail"].iter();
    places.find_map(|place| parsed.pointer(place)?.as_str()).unwrap_or(body).to_owned()
}

/// A server's words for one line of a log: short, and without the key, which some servers repeat.
fn harmless(said: &str, api_key: Option<&SecretString>) -> String {
    let key = api_key.map(|key| key.expose_secret()).filter(|key| !key.is_empty());
    let said = key.map_or_else(|| said.to_owned(), |key| said.replace(key, "[key]"));
    cut(said.replace(char::is_control, " "), WORDS_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};

    /// Puts the request to a server that answers with these bytes: what it read, and what the model said.
    async fn ask(request: ModelRequest, answer: String) -> (Value, String) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let base_url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let (mut read, mut piece) = (Vec::new(), [0; 4096]);
            while !read.ends_with(b"\"stream\":true}") {
                let bytes = client.read(&mut piece).unwrap();
                read.extend_from_slice(&piece[..bytes]);
            }
            client.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(read).unwrap()
        });
        let api_key = Some("sk-1".to_owned().into());
        let model = OpenAi::new(OpenAiConfig { id: "m".to_owned(), base_url, api_key }).unwrap();
        let said = model.stream(request).map(|event| match event {
            Ok(ModelEvent::Text(text) | ModelEvent::Reasoning(text)) => text,
            Ok(ModelEvent::CallStarted { index, provider_call_id, tool_name }) => {
                format!("{index}={tool_name}#{provider_call_id}")
            }
            Ok(ModelEvent::CallArguments { index, delta }) => format!("{index}+{delta}"),
            Ok(ModelEvent::CallFinished { index }) => format!("{index}."),
            Ok(ModelEvent::Finished { reason, usage, .. }) => {
                format!("{}/{}", reason.as_str(), usage.unwrap_or_default().output_tokens)
            }
            Err(ModelError::Upstream(said)) => format!("upstream: {said}"),
            Err(ModelError::Malformed(said)) => format!("malformed: {said}"),
        });
        let said: Vec<String> = said.collect().await;
        let read = server.join().unwrap();
        let (head, body) = read.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /v1/chat/completions ") && head.contains("Bearer sk-1"), "{head}");
        (serde_json::from_str(body).unwrap(), said.join(" "))
    }

    #[rustfmt::skip]
    #[tokio::test]
    async fn the_conversation_goes_out_as_it_is() {
        let id = format!("{}|x", "long".repeat(20));
        let input = json!({"b": 1, "a": 2}).as_object().cloned().unwrap();
        let call = |id: &str| ModelCall { id: id.into(), tool_name: "go".into(), input: input.clone() };
        let tool = |id: &str| ModelMessage::Tool { call_id: id.into(), tool_name: "go".into(), text: "".into() };
        let calls = vec![call(&id), call("2")];
        let said = ModelMessage::Assistant { text: "".into(), calls, provider_state: Some(json!(1)) };
        let user = |text: &str| ModelMessage::User(text.into());
        let messages = vec![user("a"), user("b"), said, tool(&id), tool("2")];
        let request = ModelRequest { system: Some("s".into()), messages, tools: vec![] };
        let (body, said) = ask(request, "HTTP/1.1 401 No\r\n\r\n{\"error\":\"not sk-1\"}".into()).await;
        assert_eq!(said, "upstream: status 401: not [key]");

        let function = json!({"name": "go", "arguments": r#"{"b":1,"a":2}"#});
        assert_eq!(body, json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": id, "type": "function", "function": function}, {"id": "2", "type": "function", "function": function},
            ]},
            {"role": "tool", "tool_call_id": id, "content": ""}, {"role": "tool", "tool_call_id": "2", "content": ""},
        ]}));
    }

    /// Events are `index,id,name,arguments`, a finish reason, or JSON.
    #[rustfmt::skip]
    #[tokio::test]
    async fn calls_are_told_as_the_model_made_them_or_not_at_all() {
        for (events, told) in [
            (r#"0,a,go,{"n": 0,,,1} 1,,go,{} tool_calls {"choices":[],"usage":{"completion_tokens":7}} [DONE]"#, r#"0=go#a 0+{"n": 0+1} 1=go# 1+{} 0. 1. tool-calls/7"#),
            (r#",a,go, ,,,{"n": ,,,1} ,b,go,{} tool_calls"#, r#"0=go#a 0+{"n": 0+1} 1=go#b 1+{} 0. 1. tool-calls/0"#),
            (r#"0,a,go, 0,b,,{"n":1} 1,a,go,{} stop"#, r#"0=go#a 0+{"n":1} 1=go# 1+{} 0. 1. tool-calls/0"#),
            ("0,a,go,{n 1,b,go,nul tool_calls", "0=go#a 0+{n 1=go#b 1+{} 1+nul 0. 1. tool-calls/0"),
            ("0,a,go,{} 1,b,go, length", "0=go#a 0+{} 1=go#b 1+{} 0. length/0"),
            ("0,a,go,{ [DONE]", "0=go#a 0+{ malformed: it broke off before its end"),
            ("0,a,go, 0,a,_on,{} tool_calls", "0=go#a malformed: a call of it has two names"),
            (r#"0,a,go,{} {"error":{"message":"sk-1"},"choices":[{}]}"#, "0=go#a 0+{} upstream: error in the stream: [key]"),
        ] {
            let events = events.split(' ').map(|event| match *event.split(',').collect::<Vec<_>>() {
                _ if event.starts_with(['{', '[']) => format!("data: {event}\n\n"),
                [index, id, name, arguments] => format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [
                    {"index": index.parse::<u64>().ok(), "id": id, "function": {"name": name, "arguments": arguments}}]}}]})),
                _ => format!("data: {}\n\n", json!({"choices": [{"delta": {}, "finish_reason": event}]})),
            });
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{}", events.collect::<String>());
            let request = ModelRequest { system: None, messages: vec![ModelMessage::User("hi".into())], tools: vec![] };
            assert_eq!(ask(request, answer).await.1, told);
        }
    }
}
