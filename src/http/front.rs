//! What every request passes: its id, who may call at all, the length of its body, and a task of its own.
//!
//! The task is why a client that goes away cannot end what its request has begun: the server drops a
//! connection's future at once, and with it whatever that future owns, a database transaction or a tool.

use super::Settings;
use super::auth::{self, Authenticator};
use super::error::{self, ApiError};
use super::rates::Rates;
use super::request_id::{HEADER, RequestId};
use super::upload;
use crate::agent::Tasks;
use crate::domain::clock::Clock;
use poem::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use poem::http::{HeaderValue, Method};
use poem::{Body, Endpoint, IntoResponse, Request, Response, Result};
use std::sync::Arc;
use tokio::time::Instant;
use tracing::Instrument;

/// What an answer may do that a browser takes for a page: nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

pub(super) struct Front<E> {
    inner: Arc<E>,
    settings: Settings,
    auth: Arc<Authenticator>,
    rates: Arc<Rates>,
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
        rates: Arc<Rates>,
        tasks: Tasks,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { inner: Arc::new(inner), settings, auth, rates, tasks, clock }
    }

    fn body_bytes_max(&self, path: &str) -> usize {
        if is_chat(path) { self.settings.chat_body_bytes } else { self.settings.body_bytes }
    }

    /// Sees who calls, and reads the body, so that nothing behind waits for a slow client.
    async fn admit(&self, request: &mut Request) -> Result<(), ApiError> {
        if let Some(principal) = self.auth.principal(request).await? {
            // Whoever looks whether the server is well is never in the way.
            if !auth::is_open(request.uri().path()) {
                self.rates.request(&principal)?;
            }
            request.extensions_mut().insert(principal);
        }
        // Reading along may begin a turn, and who asks for the head alone may begin nothing: poem takes that for a GET.
        if request.method() == Method::HEAD && is_chat(request.uri().path()) {
            return Err(ApiError::method_not_allowed());
        }
        let max = self.body_bytes_max(request.uri().path());
        let body = upload::read(request, max, &self.settings.deadlines).await?;
        request.set_body(Body::from_bytes(body));
        Ok(())
    }

    async fn answer(&self, mut request: Request) -> Response
    where
        E: Endpoint<Output = Response> + 'static,
    {
        if let Err(error) = self.admit(&mut request).await {
            self.tasks.spawn(upload::drain(request));
            return error.into_response();
        }
        if request.uri().path() == "/" && self.settings.docs {
            return error::redirect("/docs");
        }
        let inner = self.inner.clone();
        let answering = async move { inner.get_response(request).await };
        match self.tasks.spawn(answering).await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!(%error, "a request broke");
                ApiError::internal().into_response()
            }
        }
    }
}

impl<E: Endpoint<Output = Response> + 'static> Endpoint for Front<E> {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        let id = RequestId::of(&request, || self.clock.uuid().to_string());
        request.extensions_mut().insert(id.clone());
        let span = tracing::info_span!(
            "request",
            request_id = %id.0,
            method = %request.method(),
            path = %request.uri().path(),
        );
        let open = auth::is_open(request.uri().path());
        let began = Instant::now();
        let cors = &self.settings.cors;
        let welcome = cors.welcome(&request);
        if let Some(welcome) = &welcome {
            request.extensions_mut().insert(welcome.clone());
        }
        let mut response = match welcome.as_ref().and_then(|welcome| welcome.preflight(&request)) {
            Some(response) => response,
            None => self.answer(request).instrument(span.clone()).await,
        };
        cors.tell(welcome.as_ref(), &mut response);
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        span.in_scope(|| tracing::info!(status = response.status().as_u16(), duration_ms, "answered"));
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&id.0) {
            headers.insert(HEADER, id);
        }
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NOTHING));
        if !open {
            // What is for one caller is not for whoever asks the same proxy next.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.append(VARY, HeaderValue::from_name(AUTHORIZATION));
        }
        Ok(response)
    }
}
