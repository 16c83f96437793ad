//! What every request passes: its id, who may call at all, the length of its body, and a task of its own.
//!
//! The task is why a client that goes away cannot end what its request has begun: the server drops a
//! connection's future at once, and with it whatever that future owns, a database transaction or a tool.

use super::Settings;
use super::auth::{self, Authenticator};
use super::error::{self, ApiError};
use super::request_id::{HEADER, RequestId};
use super::trace;
use crate::agent::Tasks;
use crate::domain::clock::Clock;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use poem::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, EXPECT, VARY, X_CONTENT_TYPE_OPTIONS,
};
use poem::http::{HeaderValue, Method};
use poem::{Body, Endpoint, IntoResponse, Request, Response, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{Instrument, Span};

/// How long a body may be silent.
const PIECE_TIME: Duration = Duration::from_secs(30);
/// How much more is read of a body that is too long, and for how long.
const DRAIN_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

pub(super) struct Front<E> {
    inner: Arc<E>,
    settings: Settings,
    auth: Arc<Authenticator>,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
}

fn is_chat(path: &str) -> bool {
    path.strip_prefix("/api").unwrap_or(path).starts_with("/qa/chat_streamed")
}

impl<E> Front<E> {
    pub(super) fn new(
        inner: E,
        settings: Settings,
        auth: Arc<Authenticator>,
        tasks: Tasks,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { inner: Arc::new(inner), settings, auth, tasks, clock }
    }

    fn body_bytes_max(&self, path: &str) -> usize {
        if is_chat(path) { self.settings.chat_body_bytes } else { self.settings.body_bytes }
    }

    /// The request with its body read, so that nothing behind waits for a slow client.
    async fn admit(&self, mut request: Request) -> Result<Request, ApiError> {
        if let Some(principal) = self.auth.principal(&request).await? {
            Span::current().record("tenant", &*principal.tenant_id).record("user", &*principal.user_id);
            request.extensions_mut().insert(principal);
        }
        // Reading along may begin a turn, and who asks for the head alone may begin nothing: poem takes that for a GET.
        if request.method() == Method::HEAD && is_chat(request.uri().path()) {
            return Err(ApiError::method_not_allowed());
        }
        let max = self.body_bytes_max(request.uri().path());
        let declared = request.header(CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
        let mut too_long = declared.is_some_and(|declared| declared > max);
        let mut pieces = request.take_body().into_bytes_stream().boxed();
        let mut body = BytesMut::new();
        while !too_long && let Some(piece) = next_piece(&mut pieces).await? {
            body.extend_from_slice(&piece.map_err(|_| ApiError::bad_request("body: it broke off"))?);
            too_long = body.len() > max;
        }
        if too_long {
            // A client that asks first has sent nothing yet.
            if request.header(EXPECT).is_none() {
                drain(pieces).await;
            }
            return Err(ApiError::body_too_large(max));
        }
        request.set_body(Body::from_bytes(body.freeze()));
        Ok(request)
    }

    async fn answer(&self, request: Request) -> Response
    where
        E: Endpoint<Output = Response> + 'static,
    {
        let request = match self.admit(request).await {
            Ok(request) => request,
            Err(error) => return error.into_response(),
        };
        if request.uri().path() == "/" && self.settings.docs {
            return error::redirect("/docs");
        }
        let inner = self.inner.clone();
        let answering = async move { inner.get_response(request).await };
        match self.tasks.spawn(answering).await {
            Ok(response) => response,
            Err(error) => {
                // Its own words would be those of the panic.
                tracing::error!(panicked = error.is_panic(), "a request broke");
                ApiError::internal().into_response()
            }
        }
    }
}

/// The next piece of a body, which may not take for ever.
async fn next_piece<S: Stream + Unpin>(pieces: &mut S) -> Result<Option<S::Item>, ApiError> {
    let late = |_| ApiError::bad_request(format!("body: nothing came for {} seconds", PIECE_TIME.as_secs()));
    tokio::time::timeout(PIECE_TIME, pieces.next()).await.map_err(late)
}

/// Reads on in a body that nobody wants: a client that sends all of it before it reads would find its
/// connection closed, and no answer.
async fn drain(mut pieces: impl Stream<Item = std::io::Result<Bytes>> + Unpin) {
    let mut left = DRAIN_BYTES;
    let reading = async {
        while let Some(Ok(piece)) = pieces.next().await {
            let Some(less) = left.checked_sub(piece.len()) else { break };
            left = less;
        }
    };
    // Whoever sends more, or slower, is cut off.
    let _whole = tokio::time::timeout(DRAIN_TIME, reading).await;
}

impl<E: Endpoint<Output = Response> + 'static> Endpoint for Front<E> {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        let id = RequestId::of(&request, || self.clock.uuid().to_string());
        request.extensions_mut().insert(id.clone());
        let span = tracing::error_span!(
            "request",
            request_id = %id.0,
            method = %request.method(),
            path = %request.uri().path(),
            tenant = tracing::field::Empty,
            user = tracing::field::Empty,
            otel.name = %request.method(),
            otel.kind = "server",
            otel.status_code = tracing::field::Empty,
            http.request.method = %request.method(),
            http.route = tracing::field::Empty,
            http.response.status_code = tracing::field::Empty,
        );
        trace::continued(&span, &request);
        let method = request.method().clone();
        let open = auth::is_open(request.uri().path());
        let began = Instant::now();
        let mut response = self.answer(request).instrument(span.clone()).await;
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        trace::answered(&span, method.as_str(), &response);
        span.in_scope(|| tracing::info!(status = response.status().as_u16(), duration_ms, "answered"));
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&id.0) {
            headers.insert(HEADER, id);
        }
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if !open {
            // What is for one caller is not for whoever asks the same proxy next.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.append(VARY, HeaderValue::from_name(AUTHORIZATION));
        }
        Ok(response)
    }
}
