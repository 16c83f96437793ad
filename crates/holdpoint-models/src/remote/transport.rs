//! The transport: sends requests with reqwest, and returns the streamed response.
//!
//! The reader takes only a limited part of an error response. No error text contains the URL.

use super::context::{self, sentence};
use crate::ModelError;
use holdpoint_core::text::cut;
use holdpoint_egress::Framing;
use holdpoint_egress::chain;
use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Request, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use std::time::Duration;

/// The part of an error response that is read for the message of the server.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// The longest message of a server in an error text.
const WORDS_BYTES_MAX: usize = 500;

/// Sends requests, and removes the key from error texts.
#[derive(Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    api_key: Option<SecretString>,
}

impl Http {
    /// Returns a client for requests to this URL, or the error of its setup.
    pub(super) fn new(url: &Url, api_key: Option<SecretString>) -> Result<Self, String> {
        Ok(Self { client: holdpoint_egress::client(url)?, api_key })
    }

    /// Sends the request and returns the response after its head has arrived.
    pub(super) async fn send(&self, mut request: Request, framing: Framing) -> Result<Response, ModelError> {
        let accept = match framing {
            Framing::Sse => "text/event-stream",
            Framing::JsonLines => "application/x-ndjson",
        };
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let unreached = |error| ModelError::Unavailable { why: chain(error), retry_after: None };
        let response = self.client.execute(request).await.map_err(unreached)?;
        if response.status() != 200 {
            return Err(refusal(response).await);
        }
        Ok(response)
    }

    /// Returns the error for one log line: short, and without the key, which some servers repeat.
    pub(super) fn harmless(&self, error: ModelError) -> ModelError {
        let key = self.api_key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty());
        let harmless = |text: String| {
            let text = key.map_or_else(|| text.clone(), |key| text.replace(key, "[key]"));
            cut(text.replace(char::is_control, " "), WORDS_BYTES_MAX)
        };
        match error {
            ModelError::Unavailable { why, retry_after } => {
                ModelError::Unavailable { why: harmless(why), retry_after }
            }
            ModelError::Upstream(why) => ModelError::Upstream(harmless(why)),
            ModelError::ContextFull(why) => ModelError::ContextFull(harmless(why)),
            ModelError::Malformed(why) => ModelError::Malformed(harmless(why)),
        }
    }
}

/// Returns the content type of a response that does not call itself a stream. Some servers label their streams
/// wrongly, so that only the content decides.
pub(super) fn other_type(response: &Response, framing: Framing) -> Option<String> {
    let expected = match framing {
        Framing::Sse => &["text/event-stream"][..],
        Framing::JsonLines => &["application/x-ndjson", "application/json"][..],
    };
    let kind = response.headers().get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
    (!expected.iter().any(|expected| kind.starts_with(expected))).then_some(kind)
}

/// Returns the error of a refused request, with the necessary part of its body.
async fn refusal(mut response: Response) -> ModelError {
    let (status, retry_after) = (response.status().as_u16(), retry_after(response.headers()));
    let mut body = Vec::new();
    while body.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    let body = String::from_utf8_lossy(&body);
    let why = format!("status {status}: {}", words(&body));
    if let Some(full) = context::refusal(status, &body, &why) {
        return full;
    }
    let for_now = matches!(status, 408 | 425 | 429 | 500 | 502..=599);
    if for_now { ModelError::Unavailable { why, retry_after } } else { ModelError::Upstream(why) }
}

/// Returns the wait that the server asks for (RFC 9110, 10.2.3). A date is compared with the clock of the
/// server.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let wanted = text(RETRY_AFTER)?;
    if let Ok(seconds) = wanted.trim().parse() {
        return (seconds >= 0.0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    let until = httpdate::parse_http_date(wanted).ok()?;
    let now = httpdate::parse_http_date(text(DATE)?).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

/// Returns the message in the body of an error, or the whole body.
pub(super) fn words(body: &str) -> String {
    serde_json::from_str(body).ok().as_ref().and_then(sentence).unwrap_or(body).to_owned()
}
