//! `GET /ws`: live events, and decisions under the rules of `validate_tool`.
//!
//! ```text
//! out  {"event": event}
//! in   {"id", "decide": {tool_call_id, decision, …}}
//! out  {"id", "status", "body"}    as `validate_tool` would respond
//! ```

use crate::agent::Tasks;
use crate::feed::Subscription;
use crate::http::Api;
use crate::http::approvals::remember::RememberBody;
use crate::http::approvals::validate::{ValidateTool, decide};
use crate::http::auth::{Caller, Expiry};
use crate::http::body::formats::Id;
use crate::http::body::strict::{self, JsonObject};
use crate::http::events::event::EventView;
use crate::http::events::event_stream::end;
use crate::http::failure::error::ApiError;
use crate::http::middleware::rates::StreamSlot;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use holdpoint_core::Principal;
use holdpoint_core::decision::Surface;
use holdpoint_core::json::surrogates::without_lone_halves;
use holdpoint_serve::Admission;
use holdpoint_store::EventFilter;
use poem::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use poem::http::{HeaderMap, HeaderName};
use poem::{Endpoint, Request, Response, Result, Upgraded};
use poem_openapi::types::ToJSON;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

/// Maximum number of concurrent decisions on one socket. The next message is read after one of them has
/// ended.
const DECISIONS: usize = 8;
/// Timeout of the close handshake.
const LEAVE: Duration = Duration::from_secs(2);
/// Interval of the pings if keep-alives are disabled.
const DEFAULT_PING_INTERVAL: Duration = Duration::from_secs(60);

type Socket = WebSocketStream<Upgraded>;

/// A message of a client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientMessage {
    /// The client's id for the message. The response echoes it.
    id: Value,
    decide: Decide,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decide {
    tool_call_id: Id,
    decision: Verdict,
    validated_inputs: Option<JsonObject>,
    reason: Option<String>,
    input_hash: Option<String>,
    preview_hash: Option<String>,
    remember: Option<RememberBody>,
    /// Whether the server resumes the run. True if absent, because no client request follows that would
    /// resume it.
    resume: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Approve,
    Reject,
}

/// The WebSocket route. An OpenAPI document cannot describe it.
pub(in crate::http) struct WebSockets {
    pub(in crate::http) api: Api,
    pub(in crate::http) tasks: Tasks,
    /// Maximum length of a message, in bytes.
    pub(in crate::http) message_bytes: usize,
}

impl Endpoint for WebSockets {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        let accept = accepted(request.headers())?;
        let known = request.data::<Principal>().cloned().zip(request.data::<Expiry>().copied());
        let (principal, expiry) = known.ok_or_else(ApiError::internal)?;
        let feed = &self.api.feed;
        let slot = self.api.rates.stream(&principal)?;
        let subscribed = feed.subscribe(self.api.reader(&principal), EventFilter::default(), None).await;
        let subscription = subscribed.map_err(ApiError::from)?;
        let connection = request.data::<Arc<Admission>>().cloned();
        let upgrade = request.take_upgrade().map_err(|_| no_websocket())?;
        let session = Session {
            api: self.api.clone(),
            tasks: self.tasks.clone(),
            caller: Arc::new(Caller(principal)),
            until: expiry.instant(&*self.api.clock),
            silence: self.api.streaming.silence().unwrap_or(DEFAULT_PING_INTERVAL),
            _slot: slot,
            _connection: connection,
        };
        let message_bytes = self.message_bytes;
        self.tasks.spawn(async move {
            let Ok(upgraded) = upgrade.await else { return };
            let config = WebSocketConfig::default()
                .max_message_size(Some(message_bytes))
                .max_frame_size(Some(message_bytes));
            let socket = WebSocketStream::from_raw_socket(upgraded, Role::Server, Some(config)).await;
            session.serve(socket, subscription).await;
        });
        let head = [(CONNECTION, "upgrade"), (UPGRADE, "websocket"), (SEC_WEBSOCKET_ACCEPT, accept.as_str())];
        let head = head.into_iter().fold(Response::builder(), |head, (name, value)| head.header(name, value));
        Ok(crate::http::failure::error::switching_protocols(head))
    }
}

fn no_websocket() -> ApiError {
    ApiError::bad_request("Upgrade: expected a WebSocket of version 13 over HTTP/1.1")
}

/// Returns the `sec-websocket-accept` value for the client's key, if the request is a WebSocket handshake
/// (RFC 6455, 4.2.1).
fn accepted(headers: &HeaderMap) -> Result<String, ApiError> {
    let has = |name: HeaderName, word: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let is_upgrade =
        has(CONNECTION, "upgrade") && has(UPGRADE, "websocket") && has(SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_upgrade).ok_or_else(no_websocket)?;
    Ok(derive_accept_key(key.as_bytes()))
}

/// One client's socket.
struct Session {
    api: Api,
    tasks: Tasks,
    caller: Arc<Caller>,
    until: Option<Instant>,
    silence: Duration,
    _slot: StreamSlot,
    /// The permit of the connection. The socket keeps the permit until it ends.
    _connection: Option<Arc<Admission>>,
}

/// The reason for the end of a socket.
enum SocketEnd {
    /// The client disconnected, or gives no sign of life.
    Disconnected,
    /// The server closes the socket with a code and a reason.
    Leave(CloseCode, &'static str),
}

impl Session {
    async fn serve(self, socket: Socket, subscription: Subscription) {
        let _open = self.api.metrics.stream();
        let (mut sink, stream) = socket.split();
        let end = self.talk(&mut sink, stream, subscription).await;
        let leave = async {
            if let SocketEnd::Leave(code, reason) = end {
                let frame = CloseFrame { code, reason: reason.into() };
                sink.send(Message::Close(Some(frame))).await?;
            }
            sink.close().await
        };
        if !matches!(timeout(LEAVE, leave).await, Ok(Ok(()))) {
            tracing::debug!("a client did not complete the close handshake");
        }
    }

    async fn talk(
        &self,
        sink: &mut SplitSink<Socket, Message>,
        mut stream: SplitStream<Socket>,
        mut subscription: Subscription,
    ) -> SocketEnd {
        let (answer, mut answers) = mpsc::channel::<Value>(DECISIONS);
        let mut beat = interval(self.silence);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Each beat sends a ping. After three pings without any message from the client, the next beat ends
        // the socket. While the socket is not read, because the maximum of decisions is in flight, a beat
        // says nothing about the client.
        let mut silent = 0;
        loop {
            let free = answer.clone().try_reserve_owned().ok();
            let reads = free.is_some();
            let message = tokio::select! {
                () = end(self.until) => return SocketEnd::Leave(CloseCode::Policy, "the token is over"),
                events = subscription.next() => match events {
                    Some(events) => events.iter().map(|event| json!({ "event": EventView::of(event).to_json() })).collect(),
                    None => return SocketEnd::Leave(CloseCode::Away, "the server is stopping"),
                },
                Some(answer) = answers.recv() => vec![answer],
                received = stream.next(), if reads => {
                    silent = 0;
                    match (received, free) {
                        (Some(Ok(Message::Text(text))), Some(free)) => {
                            self.take(text.to_string(), free);
                            continue;
                        }
                        (Some(Ok(Message::Binary(_))), _) => {
                            return SocketEnd::Leave(CloseCode::Unsupported, "expected text");
                        }
                        (Some(Ok(Message::Close(_))) | None, _) => return SocketEnd::Disconnected,
                        (Some(Err(tokio_tungstenite::tungstenite::Error::Capacity(_))), _) => {
                            return SocketEnd::Leave(CloseCode::Size, "the message is too long");
                        }
                        (Some(Err(_)), _) => return SocketEnd::Disconnected,
                        (Some(Ok(_)), _) => continue,
                    }
                }
                _ = beat.tick() => {
                    if silent > 2 {
                        return SocketEnd::Disconnected;
                    }
                    silent = if reads { silent + 1 } else { 0 };
                    if sink.send(Message::Ping(Vec::new().into())).await.is_err() {
                        return SocketEnd::Disconnected;
                    }
                    continue;
                }
            };
            for message in message {
                if sink.send(Message::text(message.to_string())).await.is_err() {
                    return SocketEnd::Disconnected;
                }
            }
        }
    }

    /// Decides in a task, and answers when the decision has ended: a tool may take its time.
    fn take(&self, text: String, free: mpsc::OwnedPermit<Value>) {
        let (api, caller) = (self.api.clone(), self.caller.clone());
        self.tasks.spawn(async move {
            let message = match strict::parse::<ClientMessage>(&text) {
                Ok(message) => message,
                Err(error) => {
                    free.send(refused(&id_of(&text), error));
                    return;
                }
            };
            let ClientMessage { id, decide: message } = message;
            let message = ValidateTool {
                tool_call_id: message.tool_call_id,
                is_validated: matches!(message.decision, Verdict::Approve),
                validated_inputs: message.validated_inputs,
                reason: message.reason,
                input_hash: message.input_hash,
                preview_hash: message.preview_hash,
                link: None,
                remember: message.remember,
                resume: Some(message.resume.unwrap_or(true)),
            };
            free.send(match decide(&api, &caller, message, Surface::Websocket).await {
                Ok((status, body)) => json!({ "id": id, "status": status, "body": body }),
                Err(error) => refused(&id, error),
            });
        });
    }
}

/// Returns the response to a refused decision.
fn refused(id: &Value, error: ApiError) -> Value {
    let refusal = error.refusal();
    json!({ "id": id, "status": refusal.status, "body": { "error": refusal.error.to_json() } })
}

/// Returns the id of an invalid message, if it can be read.
fn id_of(text: &str) -> Value {
    let read = serde_json::from_str::<Value>(&without_lone_halves(text)).ok();
    read.and_then(|read| read.get("id").cloned()).unwrap_or_default()
}
