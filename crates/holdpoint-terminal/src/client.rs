//! The client of a server: its public HTTP interface, and nothing else.

use super::failure::{ErrorDetail, Failure, Refusal};
use crate::config;
use holdpoint_core::text::visible::visible;
use holdpoint_egress::{Frames, Framing, chain, client};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::{Method, RequestBuilder, Response, Url};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::ops::ControlFlow;
use std::time::Duration;

/// The time for one read.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for a decision, whose response waits for the outcome of the tool.
const DECISION_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest response. A server sends at most a page of calls.
const BODY_BYTES_MAX: usize = 64 << 20;
/// The size of a page: the maximum of a server.
const PAGE_SIZE: &str = "200";

#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: Url,
    /// The flag or the variable with the address.
    key: &'static str,
    config: config::Client,
}

/// The response to a decision.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) body: Box<RawValue>,
    /// Whether an earlier request made the same decision.
    pub(crate) replayed: bool,
}

#[derive(Debug, Deserialize)]
struct Page {
    results: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ErrorBody {
    error: ErrorDetail,
}

pub(crate) type Parameter<'a> = (&'a str, &'a str);

impl Client {
    pub(crate) fn new(config: config::Client) -> Result<Self, Failure> {
        let Some((url, key)) = config.url() else {
            let expected = "--url: expected the address of a server, here or in HOLDPOINT_URL";
            return Err(Failure::Usage(expected.to_owned()));
        };
        let url = url.clone();
        let http = client(&url).map_err(Failure::Unreadable)?;
        Ok(Self { http, url, key, config })
    }

    /// Reads one resource.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[Parameter<'_>],
    ) -> Result<T, Failure> {
        let request = self.request(Method::GET, path, query)?.timeout(READ_TIMEOUT);
        self.parsed(self.send(request, false).await?, false).await
    }

    /// Asks the tool of a call what the call would do with other inputs.
    pub(crate) async fn preview<T: DeserializeOwned>(
        &self,
        id: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = self.posting(&["tool_calls", id, "preview"], body)?.timeout(READ_TIMEOUT);
        self.parsed(self.send(request, false).await?, false).await
    }

    /// Reads the inputs of a call without masks. The server records it.
    pub(crate) async fn reveal<T: DeserializeOwned>(&self, id: &str) -> Result<T, Failure> {
        let path = ["tool_calls", id, "reveal"];
        let request = self.request(Method::POST, &path, &[])?.timeout(READ_TIMEOUT);
        self.parsed(self.send(request, false).await?, false).await
    }

    /// Records the outcome of an interrupted call.
    pub(crate) async fn resolve<T: DeserializeOwned>(
        &self,
        id: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let request = self.posting(&["tool_calls", id, "resolve"], body)?.timeout(READ_TIMEOUT);
        self.parsed(self.send(request, false).await?, false).await
    }

    /// Sends a decision, and waits for the outcome as long as the server does.
    pub(crate) async fn decide(&self, body: &impl Serialize) -> Result<Decided, Failure> {
        let request = self.posting(&["qa", "validate_tool"], body)?.timeout(DECISION_TIMEOUT);
        let response = self.send(request, true).await?;
        let replayed = response.headers().get("idempotent-replayed").is_some_and(|value| value == "true");
        Ok(Decided { body: self.parsed(response, true).await?, replayed })
    }

    /// Opens the stream of events, after the last one that was read, or from now on.
    pub(crate) async fn events(&self, query: &[Parameter<'_>], last: Option<i64>) -> Result<Frames, Failure> {
        let mut request = self.request(Method::GET, &["events", "stream"], query)?;
        request = request.header(ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let opened = tokio::time::timeout(READ_TIMEOUT, self.send(request, false)).await;
        let response = opened.map_err(|_| self.unreachable("the server did not answer in time", false))??;
        Ok(Frames::new(response.bytes_stream(), Framing::Sse))
    }

    /// Passes the items of all pages of a list to `take`, until `take` ends it.
    pub(crate) async fn each(
        &self,
        path: &[&str],
        query: &[Parameter<'_>],
        mut take: impl FnMut(Box<RawValue>) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let mut cursor: Option<String> = None;
        loop {
            let mut query = query.to_vec();
            query.push(("page_size", PAGE_SIZE));
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let page: Page = self.get(path, &query).await?;
            for item in page.results {
                if take(item)?.is_break() {
                    return Ok(());
                }
            }
            match page.next_cursor {
                None => return Ok(()),
                Some(next) if cursor.as_ref() == Some(&next) => {
                    return Err(Failure::Unreadable("a list repeats a page".to_owned()));
                }
                next => cursor = next,
            }
        }
    }

    fn request(
        &self,
        method: Method,
        path: &[&str],
        query: &[Parameter<'_>],
    ) -> Result<RequestBuilder, Failure> {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.http.request(method, url);
        if let Some(token) = self.config.token()? {
            let header = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()));
            let mut header = header.map_err(|_| Failure::Usage("the token cannot be sent".to_owned()))?;
            header.set_sensitive(true);
            request = request.header(AUTHORIZATION, header);
        }
        Ok(request)
    }

    fn posting(&self, path: &[&str], body: &impl Serialize) -> Result<RequestBuilder, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(self.request(Method::POST, path, &[])?.header(CONTENT_TYPE, "application/json").body(body))
    }

    async fn send(&self, request: RequestBuilder, decides: bool) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| {
            // Before the connection is made, nothing can be decided.
            let decides = decides && !error.is_connect();
            self.unreachable(chain(error), decides)
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let challenge = header(WWW_AUTHENTICATE).and_then(cause).map(str::to_owned);
        let retry_after = header(RETRY_AFTER).and_then(|seconds| seconds.parse().ok());
        let body = self.bytes(response, decides).await.unwrap_or_default();
        let error = serde_json::from_slice(&body).map_or_else(
            |_| ErrorDetail { message: "the server refused".to_owned(), ..ErrorDetail::default() },
            |ErrorBody { error }| error,
        );
        Err(Failure::Refused(Box::new(Refusal { status, error, challenge, retry_after, decides })))
    }

    async fn parsed<T: DeserializeOwned>(&self, response: Response, decides: bool) -> Result<T, Failure> {
        let body = self.bytes(response, decides).await?;
        parsed(&body)
    }

    async fn bytes(&self, mut response: Response, decides: bool) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(piece) =
            response.chunk().await.map_err(|error| self.unreachable(chain(error), decides))?
        {
            if body.len().saturating_add(piece.len()) > BODY_BYTES_MAX {
                return Err(Failure::Unreadable(format!("it is longer than {BODY_BYTES_MAX} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    fn unreachable(&self, why: impl Into<String>, decides: bool) -> Failure {
        // The cause may name what another user at this address sent.
        let why = visible(&why.into());
        Failure::Unreachable { url: self.url.to_string(), key: self.key, why, decides }
    }
}

/// Parses JSON of the server.
pub(crate) fn parsed<T: DeserializeOwned>(json: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(json).map_err(|error| Failure::Unreadable(visible(&error.to_string())))
}

/// Returns the description in a `www-authenticate` header (RFC 6750, 3).
fn cause(challenge: &str) -> Option<&str> {
    challenge.split_once("error_description=\"")?.1.split('"').next()
}
