//! The requests to a server over HTTP.

use crate::mcp::client::entry::Endpoint;
use crate::mcp::client::failure;
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::log::pace::Pace;
use crate::mcp::client::message::raw::admitted;
use crate::mcp::client::transport::authorization::{self, Authorization, NoToken, Unsent, challenge_of};
use futures::StreamExt;
use holdpoint_egress::read;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{RequestBuilder, Response};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use rmcp::transport::common::http_header::HEADER_SESSION_ID;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::SseStream;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

type Headers = HashMap<HeaderName, HeaderValue>;
type HttpError = StreamableHttpError<reqwest::Error>;

/// Maximum size of the body of a refusal, in bytes. A longer one has no words for a call.
const WORDS_BYTES_MAX: usize = 16 * 1024;
/// How many streams are opened again at once, and then each second. A server may end each stream as soon as it begins.
const STREAMS_AT_ONCE: u32 = 16;
const STREAMS_PER_SECOND: u32 = 1;

/// A client of one connection to a server.
#[derive(Clone)]
pub(in crate::mcp) struct HttpClient {
    client: reqwest::Client,
    authorization: Option<Arc<Authorization>>,
    streams: Arc<Pace>,
    log: Arc<LogRate>,
    /// The address to which the server has redirected the handshake.
    moved: Arc<OnceLock<Arc<str>>>,
}

impl HttpClient {
    pub(in crate::mcp) fn new(endpoint: &Endpoint, log: Arc<LogRate>) -> Self {
        let streams = Arc::new(Pace::new(STREAMS_AT_ONCE, STREAMS_PER_SECOND));
        let (client, authorization) = (endpoint.client.clone(), endpoint.authorization.clone());
        Self { client, authorization, streams, log, moved: Arc::default() }
    }

    /// Has the library send a request with a token, and once more with another one if the server refuses it.
    async fn authorized<T, F: Future<Output = Result<T, HttpError>>>(
        &self,
        send: impl Fn(Option<String>) -> F,
    ) -> Result<T, HttpError> {
        let Some(authorization) = &self.authorization else { return send(None).await };
        let token = authorization.token().await.map_err(no_token)?;
        let refused = match send(token.clone()).await {
            Err(error) => error,
            sent => return sent,
        };
        let Some(challenge) = refused_credentials(&refused) else { return Err(refused) };
        match authorization.after_refusal(token.as_deref(), challenge).await.map_err(no_token)? {
            next @ Some(_) => send(next).await,
            None => Err(refused),
        }
    }

    /// Returns the address of the server.
    fn at(&self, uri: Arc<str>) -> Arc<str> {
        self.moved.get().cloned().unwrap_or(uri)
    }

    /// Asks a server where it redirects the first message, which has no effect, and keeps the address if it is of the same
    /// origin. The headers go nowhere else.
    async fn redirect(
        &self,
        uri: Arc<str>,
        message: &ClientJsonRpcMessage,
        headers: &Headers,
    ) -> Result<(), HttpError> {
        let mut request = self.client.post(uri.as_ref()).header(CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let response = self.send(request.body(serde_json::to_vec(message)?)).await?;
        let (from, to) = (response.url(), response.headers().get(LOCATION));
        let to = to.and_then(|to| from.join(to.to_str().ok()?).ok());
        let why = match to {
            Some(to) if to.origin() == from.origin() => {
                let _first = self.moved.set(to.as_str().into());
                return Ok(());
            }
            Some(to) => {
                format!("it redirects to {to}, which is not followed; set url to the address of the server")
            }
            None => format!("HTTP {}", response.status()),
        };
        Err(StreamableHttpError::UnexpectedServerResponse(why.into()))
    }

    /// Sends a request that is not one of the library.
    async fn send(&self, request: RequestBuilder) -> Result<Response, HttpError> {
        authorization::send(self.authorization.as_deref(), request).await.map_err(|unsent| match unsent {
            Unsent::NoToken => no_token(NoToken),
            Unsent::Failed(error) => error.into(),
        })
    }

    /// Leaves out the events of a stream that are not read.
    fn events(&self, events: BoxedSseResponse) -> BoxedSseResponse {
        let log = self.log.clone();
        let events = events.map(move |event| {
            event.map(|mut event| {
                event.data = event.data.and_then(|data| admitted(&data, &log).map(Cow::into_owned));
                event
            })
        });
        events.boxed()
    }

    /// Returns the answer to a message. The library reads the status of a request that begins a session, and takes a
    /// refusal of it for the sign of an older server.
    async fn answer(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        has_session: bool,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let (status, headers) = (response.status(), response.headers());
        let text = |name: HeaderName| {
            headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        if let Some(challenge) = challenge_of(&response) {
            return Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)));
        }
        match status.as_u16() {
            202 | 204 => return Ok(StreamableHttpPostResponse::Accepted),
            404 if has_session => return Err(StreamableHttpError::SessionExpired),
            _ => {}
        }
        let asked = match message {
            JsonRpcMessage::Request(request) => Some(&request.id),
            _ => None,
        };
        let (content_type, retry_after) = (text(CONTENT_TYPE), text(RETRY_AFTER));
        let is = |expected: &str| {
            let named = content_type.as_deref().and_then(|it| it.split(';').next());
            named.is_some_and(|named| named.trim().eq_ignore_ascii_case(expected))
        };
        // An answer to one request, whatever it is, says nothing about the others.
        let refused = |words: String| match asked {
            Some(id) => {
                let error = failure::of_status(status.as_u16(), retry_after.as_deref(), words);
                Ok(StreamableHttpPostResponse::Json(JsonRpcMessage::error(error, Some(id.clone())), None))
            }
            None if status.is_success() => Ok(StreamableHttpPostResponse::Accepted),
            None => Err(HttpStatusError::new(status.as_u16(), None).into()),
        };
        if status.is_success() && is("text/event-stream") {
            let events = self.events(bounded(response, limits.max_sse_event_size));
            return Ok(StreamableHttpPostResponse::Sse(events, None));
        }
        let is_json = is("application/json");
        if asked.is_none() && !is_json {
            return refused(String::new());
        }
        let bytes_max = if is_json { limits.max_json_response_size } else { WORDS_BYTES_MAX };
        let words = |body: &str| match body.trim() {
            "" => format!("HTTP {status}"),
            // A page for people has no words for a call.
            body if is("text/html") || body.starts_with('<') => format!("HTTP {status}"),
            body => format!("HTTP {status}: {body}"),
        };
        let body = match read(response, bytes_max).await {
            Ok(body) => body,
            Err(_too_long) => return refused(words("")),
        };
        let text = String::from_utf8_lossy(&body);
        let answer = Some(&*text)
            .filter(|_| is_json)
            .and_then(|text| admitted(text, &self.log))
            .and_then(|text| serde_json::from_str::<ServerJsonRpcMessage>(&text).ok());
        match answer {
            // By these statuses a server refuses the request before its work.
            Some(JsonRpcMessage::Error(error)) if matches!(status.as_u16(), 403 | 429) => {
                refused(words(&error.error.message))
            }
            Some(answer @ JsonRpcMessage::Error(_)) => Ok(StreamableHttpPostResponse::Json(answer, None)),
            Some(answer) if status.is_success() && asked.is_some() => {
                Ok(StreamableHttpPostResponse::Json(answer, None))
            }
            _ if status.is_success() && asked.is_some() => {
                refused(format!("HTTP {status}, and no message of the protocol"))
            }
            _ => refused(words(&text)),
        }
    }
}

/// Reads the events of a response, each of at most this many bytes.
pub(in crate::mcp) fn bounded(response: Response, bytes_max: usize) -> BoxedSseResponse {
    let mut size = EventSize::default();
    let pieces = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(|error| std::io::Error::other(error.without_url()))?;
        if size.after(&piece) > bytes_max {
            return Err(std::io::Error::other("an event is too long"));
        }
        Ok(piece)
    });
    SseStream::from_bytes_stream(pieces).boxed()
}

/// The size of an event that has not ended. An empty line ends it.
#[derive(Default)]
struct EventSize {
    bytes: usize,
    line: usize,
    was_cr: bool,
}

impl EventSize {
    /// Returns the size after these bytes.
    fn after(&mut self, piece: &[u8]) -> usize {
        for byte in piece {
            self.bytes = self.bytes.saturating_add(1);
            match byte {
                // The second half of a line end.
                b'\n' if self.was_cr => {}
                b'\n' | b'\r' if self.line == 0 => self.bytes = 0,
                b'\n' | b'\r' => self.line = 0,
                _ => self.line = self.line.saturating_add(1),
            }
            self.was_cr = *byte == b'\r';
        }
        self.bytes
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        headers: Headers,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        // The library reads how a server answers the first request, and whether its answer is that of an older server.
        if begins(&message) {
            let post = |uri: Arc<str>, message: ClientJsonRpcMessage| {
                let (session_id, headers) = (&session_id, &headers);
                self.authorized(move |token| {
                    self.client.post_message_with_response_limits(
                        uri.clone(),
                        message.clone(),
                        session_id.clone(),
                        token,
                        headers.clone(),
                        limits,
                    )
                })
            };
            let posted = match post(self.at(uri.clone()), message.clone()).await {
                Err(error) if is_redirect(&error) => {
                    self.redirect(self.at(uri.clone()), &message, &headers).await?;
                    post(self.at(uri), message).await
                }
                posted => posted,
            };
            return Ok(match posted? {
                StreamableHttpPostResponse::Sse(events, session) => {
                    StreamableHttpPostResponse::Sse(self.events(events), session)
                }
                other => other,
            });
        }
        let body = serde_json::to_vec(&message)?;
        let mut request =
            self.client.post(self.at(uri).as_ref()).header(ACCEPT, "text/event-stream, application/json");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(session) = &session_id {
            request = request.header(HEADER_SESSION_ID, session.as_ref());
        }
        let response = self.send(request.header(CONTENT_TYPE, "application/json").body(body)).await?;
        self.answer(response, &message, session_id.is_some(), limits).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        headers: Headers,
    ) -> Result<(), HttpError> {
        let delete = |token| {
            self.client.delete_session(self.at(uri.clone()), session_id.clone(), token, headers.clone())
        };
        self.authorized(delete).await
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        headers: Headers,
    ) -> Result<BoxedSseResponse, HttpError> {
        let limit = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, headers, limit)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        headers: Headers,
        bytes_max: usize,
    ) -> Result<BoxedSseResponse, HttpError> {
        if !self.streams.try_one() {
            self.log.too_many_streams();
            self.streams.one().await;
        }
        let open = |token| {
            self.client.get_stream_with_max_sse_event_size(
                self.at(uri.clone()),
                session_id.clone(),
                last_event_id.clone(),
                token,
                headers.clone(),
                bytes_max,
            )
        };
        Ok(self.events(self.authorized(open).await?))
    }
}

/// The error of a request that was not sent for want of a token.
fn no_token(NoToken: NoToken) -> HttpError {
    StreamableHttpError::AuthRequired(AuthRequiredError::new(String::new()))
}

/// Returns the challenge of a server that refuses the credentials of a request.
fn refused_credentials(error: &HttpError) -> Option<&str> {
    match error {
        StreamableHttpError::AuthRequired(challenge) => Some(&challenge.www_authenticate_header),
        StreamableHttpError::UnexpectedServerResponse(why) if why.starts_with("HTTP 401") => Some(""),
        _ => None,
    }
}

/// Whether a server answered the first message with a redirect. The library follows none.
fn is_redirect(error: &HttpError) -> bool {
    let StreamableHttpError::UnexpectedServerResponse(why) = error else { return false };
    ["HTTP 301", "HTTP 302", "HTTP 307", "HTTP 308"].iter().any(|status| why.starts_with(status))
}

/// Whether a message is the first one to a server.
fn begins(message: &ClientJsonRpcMessage) -> bool {
    let JsonRpcMessage::Request(request) = message else { return false };
    matches!(request.request, ClientRequest::InitializeRequest(_) | ClientRequest::DiscoverRequest(_))
}

#[cfg(test)]
mod tests {
    use super::EventSize;

    #[test]
    fn an_empty_line_ends_an_event_and_nothing_else_does() {
        let after = |text: &str| {
            let mut size = EventSize::default();
            text.bytes().fold(0, |_, byte| size.after(&[byte]))
        };
        for (text, bytes) in [
            ("data: a\n\n", 0),
            ("data: a\r\n\r", 0),
            ("data: a\r\r", 0),
            ("data: a\n\ndata", 4),
            ("data: a\ndata: b\n", 16),
            ("data: a\r\ndata: b\r\n", 18),
            (": a\n: b\n", 8),
        ] {
            assert_eq!(after(text), bytes, "{text:?}");
        }
    }
}
