//! The bytes: a request over reqwest, and the answer as it comes in.
//!
//! What is read of a refusal has a limit, and the URL is in no error's text.

use super::frames::Framing;
use crate::domain::call::cut;
use crate::egress::{self, chain};
use crate::llm::ModelError;
use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Request, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::time::Duration;

/// How much of a refusal is read to find the server's own words.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Enough of a server's words to know what is wrong.
const WORDS_BYTES_MAX: usize = 500;

/// Sends requests, and takes care of the key in what comes back.
#[derive(Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    api_key: Option<SecretString>,
}

impl Http {
    /// For requests to this address; or what is in their way.
    pub(super) fn new(url: &Url, api_key: Option<SecretString>) -> Result<Self, String> {
        Ok(Self { client: egress::client(url)?, api_key })
    }

    /// The answer, once it has begun.
    pub(super) async fn send(&self, mut request: Request, framing: Framing) -> Result<Response, ModelError> {
        let (accept, expected) = match framing {
            Framing::Sse => ("text/event-stream", &["text/event-stream"][..]),
            Framing::JsonLines => ("application/x-ndjson", &["application/x-ndjson", "application/json"][..]),
        };
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(accept));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let unreached = |error| ModelError::Unavailable { why: chain(error), retry_after: None };
        let response = self.client.execute(request).await.map_err(unreached)?;
        if response.status() != 200 {
            return Err(refusal(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        match kind.map(str::to_ascii_lowercase) {
            Some(kind) if !expected.iter().any(|expected| kind.starts_with(expected)) => {
                Err(ModelError::Upstream(format!("it answered with {kind}, not with a stream")))
            }
            _ => Ok(response),
        }
    }

    /// The error, fit for one line of a log: short, and without the key, which some servers repeat.
    pub(super) fn harmless(&self, error: ModelError) -> ModelError {
        let key = self.api_key.as_ref().map(ExposeSecret::expose_secret).filter(|key| !key.is_empty());
        let harmless = |said: String| {
            let said = key.map_or_else(|| said.clone(), |key| said.replace(key, "[key]"));
            cut(said.replace(char::is_control, " "), WORDS_BYTES_MAX)
        };
        match error {
            ModelError::Unavailable { why, retry_after } => {
                ModelError::Unavailable { why: harmless(why), retry_after }
            }
            ModelError::Upstream(why) => ModelError::Upstream(harmless(why)),
            ModelError::Malformed(why) => ModelError::Malformed(harmless(why)),
        }
    }
}

/// The server's no, with as much of its body as may be needed.
async fn refusal(mut response: Response) -> ModelError {
    let (status, retry_after) = (response.status().as_u16(), retry_after(response.headers()));
    let mut body = Vec::new();
    while body.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    let why = format!("status {status}: {}", words(&String::from_utf8_lossy(&body)));
    let for_now = matches!(status, 408 | 425 | 429 | 500 | 502..=599);
    if for_now { ModelError::Unavailable { why, retry_after } } else { ModelError::Upstream(why) }
}

/// How long a server wants to be left alone (RFC 9110, 10.2.3). A date is read against the server's own clock.
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

/// The sentence in an error's body, or the body.
pub(super) fn words(body: &str) -> String {
    serde_json::from_str(body).ok().as_ref().and_then(sentence).unwrap_or(body).to_owned()
}

/// The sentence in an error, where it has one.
pub(super) fn sentence(error: &Value) -> Option<&str> {
    let error = error.get(0).unwrap_or(error);
    let mut places = ["/error/message", "/error", "/message", "/detail"].iter();
    places.find_map(|place| error.pointer(place)?.as_str())
}
