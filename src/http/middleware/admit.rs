//! The middleware that every request passes: request id, authentication, rate limits, the body, and a task of
//! its own.
//!
//! The server drops the future of a connection as soon as the client disconnects, with everything that the
//! future owns, such as a database transaction or a tool. Each request therefore runs in its own task, and a
//! disconnect does not end the work of a request. The task also counts and logs the response, even if the
//! client has disconnected.

use crate::agent::Tasks;
use crate::delivery::Deliveries;
use crate::http::Settings;
use crate::http::auth::{self, Authenticator, KnownCaller, Reporter};
use crate::http::body::known_query::KnownQuery;
use crate::http::body::posted::Bounds;
use crate::http::failure::error::{self, ApiError};
use crate::http::middleware::allow::AllowedMethods;
use crate::http::middleware::in_flight::Sender;
use crate::http::middleware::rates::{OpenRequest, Rates};
use crate::http::middleware::request_id::{HEADER, RequestId};
use crate::http::middleware::trace;
use crate::http::routes::console;
use crate::http::routes::health;
use crate::http::routes::hooks::UnverifiedReport;
use crate::http::stream::disconnected::Disconnected;
use crate::http::stream::stream_response::AS_IT_IS;
use crate::tools::CurrentTools;
use futures::FutureExt;
use holdpoint_core::clock::Clock;
use holdpoint_metrics::Metrics;
use holdpoint_serve::{drain_body, live_with_client, read_body};
use holdpoint_store::Store;
use poem::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use poem::http::{HeaderValue, Method};
use poem::{Body, Endpoint, IntoResponse, PathPattern, Request, Response, Result};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::time::Instant;
use tracing::{Instrument, Span};

/// The default content security policy: a response that a browser renders as a page may do nothing.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// The middleware, with the endpoint that it wraps.
pub(in crate::http) struct Middleware<E>(pub(in crate::http) Arc<Shared<E>>);

pub(in crate::http) struct Shared<E> {
    pub(in crate::http) inner: E,
    pub(in crate::http) settings: Settings,
    pub(in crate::http) bounds: Bounds,
    pub(in crate::http) auth: Arc<Authenticator>,
    pub(in crate::http) tools: CurrentTools,
    pub(in crate::http) deliveries: Arc<Deliveries>,
    pub(in crate::http) store: Store,
    pub(in crate::http) rates: Arc<Rates>,
    pub(in crate::http) tasks: Tasks,
    pub(in crate::http) clock: Arc<dyn Clock>,
    pub(in crate::http) metrics: Metrics,
    pub(in crate::http) allowed: Arc<AllowedMethods>,
    pub(in crate::http) known_query: Arc<KnownQuery>,
}

/// A request that passed the checks before its handler.
enum Admitted {
    /// Its answer is the same for all, and in memory once.
    Open,
    /// The sender has no token.
    Signed(Sender),
    User {
        sender: Sender,
        _open: OpenRequest,
    },
}

impl Admitted {
    fn sender(&self) -> Option<&Sender> {
        match self {
            Self::Open => None,
            Self::Signed(sender) | Self::User { sender, .. } => Some(sender),
        }
    }
}

fn is_chat(path: &str) -> bool {
    path.strip_prefix("/api").unwrap_or(path).starts_with("/qa/chat_streamed")
}

/// Whether a request to this path is of no use to a client that has closed its side: a claim that waits for work, which
/// such a client could take and never do, or a stream of events, which has no end.
fn lives_with_client(path: &str) -> bool {
    let path = path.strip_prefix("/api").unwrap_or(path);
    matches!(path, "/tool_calls/claim" | "/events") || path.ends_with("/events/stream")
}

impl<E: Endpoint<Output = Response>> Shared<E> {
    /// Authenticates the caller, applies the rate limits and reads the body. The inner endpoint then never
    /// waits for a slow client.
    async fn admit(&self, request: &mut Request) -> Result<Admitted, ApiError> {
        if let Some(reporter) = Reporter::of(request, &self.tools.now(), self.clock.now()) {
            let reporter = reporter?;
            self.rates.report(reporter.call)?;
            self.known_query.check(request)?;
            let sender = Sender::service(&reporter.tool);
            request.extensions_mut().insert(reporter);
            self.read(request, self.settings.body_bytes, &sender).await?;
            return Ok(Admitted::Signed(sender));
        }
        if let Some(report) = UnverifiedReport::of(request, self.deliveries.hooks(), self.clock.now()) {
            request.extensions_mut().insert(report?);
            let sender = Sender::unsigned(request);
            self.read(request, self.settings.body_bytes, &sender).await?;
            return Ok(Admitted::Signed(sender));
        }
        let known = self.auth.known(request).await?;
        if auth::is_open(request.uri().path()) {
            // Open paths have no rate limit, and the server does not read a body there.
            return match *request.method() {
                Method::GET | Method::HEAD => Ok(Admitted::Open),
                _ => Err(ApiError::method_not_allowed()),
            };
        }
        let KnownCaller { principal, expiry, ticket, session } = known.ok_or_else(ApiError::internal)?;
        Span::current().record("tenant", &*principal.tenant_id).record("user", &*principal.user_id);
        self.rates.request(&principal)?;
        let open = self.rates.open(&principal)?;
        let sender = Sender::user(request, &principal);
        self.known_query.check(request)?;
        if let Some(ticket) = ticket {
            ticket.use_up(&self.store).await?;
        }
        let chat = is_chat(request.uri().path());
        if chat {
            // A GET of a chat can start a turn. poem handles a HEAD as a GET, and a HEAD must start nothing.
            if request.method() == Method::HEAD {
                return Err(ApiError::method_not_allowed());
            }
            // The slot is taken before the body is read, so a user has no more chat bodies in flight than
            // streams.
            let slot = self.rates.stream(&principal)?;
            request.extensions_mut().insert(slot);
        }
        request.extensions_mut().insert(self.bounds);
        request.extensions_mut().insert(principal);
        request.extensions_mut().insert(expiry);
        if let Some(session) = session {
            request.extensions_mut().insert(session);
        }
        let max = if chat { self.settings.chat_body_bytes } else { self.settings.body_bytes };
        self.read(request, max, &sender).await?;
        Ok(Admitted::User { sender, _open: open })
    }

    async fn read(&self, request: &mut Request, max: usize, sender: &Sender) -> Result<(), ApiError> {
        let reserved = self.rates.in_flight.body(sender);
        let body = read_body(request, max, &self.settings.deadlines, reserved).await?;
        request.set_body(Body::from_bytes(body));
        Ok(())
    }

    async fn answer(&self, mut request: Request) -> Response {
        if lives_with_client(request.uri().path()) {
            live_with_client(&request);
        }
        // Boxed, so that its memory is free when the request is admitted.
        let admitted = match Box::pin(self.admit(&mut request)).await {
            Ok(admitted) => admitted,
            Err(error) => {
                self.tasks.spawn(drain_body(request));
                return error.into_response();
            }
        };
        if let Some(response) = self.auth.sign_in(&request).await {
            return response;
        }
        // The router has no place for the console's root beside the routes that are nested there.
        if self.settings.console
            && let Some(file) = console::answer(&request)
        {
            return file;
        }
        if request.uri().path() == "/" && self.settings.docs {
            return error::redirect("/docs");
        }
        let answering = AssertUnwindSafe(self.inner.get_response(request)).catch_unwind();
        let response = answering.await.unwrap_or_else(|_| {
            // The panic hook has already logged the message.
            tracing::error!("a request panicked");
            ApiError::internal().into_response()
        });
        match admitted.sender() {
            Some(sender) => self.rates.in_flight.hold(sender, response).await,
            None => response,
        }
    }

    /// Answers the request, then counts and logs the response.
    async fn call(&self, mut request: Request, id: RequestId) -> Response {
        let began = Instant::now();
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let open_to_all = auth::is_open(&path);
        let cors = &self.settings.cors;
        let allowed_origin = cors.allowed_origin(&request);
        if let Some(allowed_origin) = &allowed_origin {
            request.extensions_mut().insert(allowed_origin.clone());
        } else {
            cors.warn_of_refused(&request);
        }
        let mut response =
            match allowed_origin.as_ref().and_then(|allowed_origin| allowed_origin.preflight(&request)) {
                Some(response) => response,
                None => self.answer(request).await,
            };
        cors.add_headers(allowed_origin.as_ref(), &mut response);
        self.allowed.add_header(&path, &mut response);
        let headers = response.headers_mut();
        if let Ok(id) = HeaderValue::from_str(&id.0) {
            headers.insert(HEADER, id);
        }
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(NOTHING));
        if !open_to_all {
            // A shared cache must not store the response of one caller and serve it to another.
            if headers.get(CACHE_CONTROL) != Some(&AS_IT_IS) {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            }
            headers.append(VARY, HeaderValue::from_name(AUTHORIZATION));
        }
        let (status, time) = (response.status().as_u16(), began.elapsed());
        let route = response.data::<PathPattern>().and_then(|pattern| health::template(&pattern.0));
        self.metrics.answered(route, method.as_str(), status, time);
        let duration_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        trace::answered(&Span::current(), method.as_str(), &response);
        tracing::info!(status, duration_ms, "answered");
        // The server logs a response that it drops in this span.
        response.extensions_mut().insert(Span::current());
        response
    }
}

impl<E: Endpoint<Output = Response> + 'static> Endpoint for Middleware<E> {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        let shared = self.0.clone();
        let id = RequestId::of(&request, || shared.clock.uuid().to_string());
        request.extensions_mut().insert(id.clone());
        let (disconnected, _connected) = Disconnected::new();
        request.extensions_mut().insert(disconnected);
        let span = tracing::error_span!(
            "request",
            request_id = %id.0,
            method = %request.method(),
            path = %request.uri().path(),
            tenant = tracing::field::Empty,
            user = tracing::field::Empty,
            cause = tracing::field::Empty,
            otel.name = %request.method(),
            otel.kind = "server",
            otel.status_code = tracing::field::Empty,
            http.request.method = %request.method(),
            http.route = tracing::field::Empty,
            http.response.status_code = tracing::field::Empty,
        );
        trace::continued(&span, &request);
        let answering = async move { shared.call(request, id).await }.instrument(span);
        Ok(self.0.tasks.spawn(answering).await.unwrap_or_else(|error| {
            // The text of the error would be the panic message, so only its kind is logged.
            tracing::error!(panicked = error.is_panic(), "the task of a request ended without a response");
            ApiError::internal().into_response()
        }))
    }
}
