//! Pages of other origins: which may call, and what their browsers have to be told (Fetch, 3.2).
//!
//! Only origins that the configuration names, compared as bytes; never credentials, since nothing here rides on
//! cookies. A page of another origin gets no word of this, and its browser keeps the answer from it.

use poem::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use poem::http::{HeaderValue, Method, StatusCode};
use poem::{IntoResponse, Request, Response};
use std::sync::Arc;

/// The methods of the routes.
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");
/// What a page may send. Pages of the AI SDK name themselves as their user agent.
const SENT: HeaderValue =
    HeaderValue::from_static("authorization, content-type, user-agent, x-request-id, x-stream-protocol");
/// What a page may read of an answer's head.
const READ: HeaderValue = HeaderValue::from_static(
    "idempotent-replayed, retry-after, www-authenticate, x-request-id, x-run-id, x-vercel-ai-data-stream, \
     x-vercel-ai-ui-message-stream",
);
/// How long a browser may go by this without asking again, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// The origins whose pages may call.
#[derive(Debug, Clone)]
pub(crate) struct Cors(Arc<[HeaderValue]>);

/// The origin of a request, of a page that may call. The front puts it there.
#[derive(Debug, Clone)]
pub(super) struct AllowedOrigin(HeaderValue);

impl Cors {
    /// These, as browsers write them.
    pub(crate) fn new(origins: &[String]) -> Self {
        Self(origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok()).collect())
    }

    /// The origin of the request, if it is one of these.
    pub(super) fn allowed_origin(&self, request: &Request) -> Option<AllowedOrigin> {
        let mut origins = request.headers().get_all(ORIGIN).iter();
        let origin = origins.next().filter(|origin| self.0.contains(origin))?;
        origins.next().is_none().then(|| AllowedOrigin(origin.clone()))
    }

    /// Tells the browser what its page may read, and everybody between that the answer is another for another page.
    pub(super) fn add_headers(&self, welcome: Option<&AllowedOrigin>, response: &mut Response) {
        if self.0.is_empty() {
            return;
        }
        let headers = response.headers_mut();
        headers.append(VARY, HeaderValue::from_name(ORIGIN));
        if let Some(AllowedOrigin(origin)) = welcome {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, READ);
        }
    }
}

impl AllowedOrigin {
    /// The answer to a browser that asks before it sends what its page wants to (Fetch, 4.8). It tells nothing of
    /// anybody, and comes without a token.
    pub(super) fn preflight(&self, request: &Request) -> Option<Response> {
        if request.method() != Method::OPTIONS || request.header(ACCESS_CONTROL_REQUEST_METHOD).is_none() {
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
