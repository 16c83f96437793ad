//! Cross-origin requests: the allowed origins, and the headers for their browsers (Fetch, 3.2).
//!
//! Only the configured origins are allowed, compared byte by byte. Credentials are never allowed: the
//! cookie of a sign-in is for pages of the server itself. A response to any other origin has no CORS headers, so the browser withholds the
//! response from its page.

use holdpoint_stream::Head;
use poem::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use poem::http::{HeaderValue, Method, StatusCode};
use poem::{IntoResponse, Request, Response};
use std::sync::Arc;

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
/// The request headers that a page may send. AI SDK pages send a user agent of their own.
const SENT: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, idempotency-key, user-agent, x-request-id, x-stream-protocol",
);
/// The response headers that a page may read, beside those that announce the protocols of streams.
const READ: [&str; 7] = [
    "idempotent-replayed",
    "retry-after",
    "www-authenticate",
    "x-left-out",
    "x-request-id",
    "x-run-id",
    "x-thread-id",
];
/// How long a browser may cache a preflight response, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The origins whose pages may call, and the response headers that these pages may read.
#[derive(Debug, Clone)]
pub(crate) struct Cors {
    origins: Arc<[HeaderValue]>,
    read: HeaderValue,
}

/// The allowed origin of a request. The middleware puts it into the request.
#[derive(Debug, Clone)]
pub(in crate::http) struct AllowedOrigin(HeaderValue);

impl Cors {
    /// The allowed origins, in the form that browsers send.
    pub(crate) fn new(origins: &[String]) -> Self {
        let protocols = Head::all().into_iter().map(|head| head.protocol);
        let read = READ.into_iter().chain(protocols).collect::<Vec<_>>().join(", ");
        // Every character of the name of a header is valid in a value.
        let read = HeaderValue::try_from(read).unwrap_or_else(|_| HeaderValue::from_static(""));
        Self {
            origins: origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect(),
            read,
        }
    }

    pub(in crate::http) fn allowed_origin(&self, request: &Request) -> Option<AllowedOrigin> {
        let mut origins = request.headers().get_all(ORIGIN).iter();
        let origin = origins.next().filter(|origin| self.origins.contains(origin))?;
        origins.next().is_none().then(|| AllowedOrigin(origin.clone()))
    }

    /// Logs a preflight request whose origin is not allowed. Its page learns only that the network failed.
    pub(in crate::http) fn warn_of_refused(&self, request: &Request) {
        let Some(origin) = request.headers().get(ORIGIN).filter(|_| is_preflight(request)) else { return };
        let origin = String::from_utf8_lossy(origin.as_bytes());
        tracing::warn!(%origin, "refused a preflight: add the origin to server.cors_origins to allow its pages");
    }

    /// Adds the CORS headers for the browser, and `Vary` for shared caches, because the response depends on
    /// the origin.
    pub(in crate::http) fn add_headers(&self, allowed: Option<&AllowedOrigin>, response: &mut Response) {
        if self.origins.is_empty() {
            return;
        }
        let headers = response.headers_mut();
        headers.append(VARY, HeaderValue::from_name(ORIGIN));
        if let Some(AllowedOrigin(origin)) = allowed {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, self.read.clone());
        }
    }
}

fn is_preflight(request: &Request) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

impl AllowedOrigin {
    /// Returns the response to a preflight request (Fetch, 4.8). A preflight carries no token, and the
    /// response discloses nothing about a user.
    pub(in crate::http) fn preflight(&self, request: &Request) -> Option<Response> {
        if !is_preflight(request) {
            return None;
        }
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, SENT);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        Some(response)
    }
}
