//! POST requests to other services, signed by Standard Webhooks.

use crate::domain::clock::Timestamp;
use crate::egress::{Reach, chain, continue_trace};
use crate::standard_webhooks::{ID, SIGNATURE, Signer, TIMESTAMP};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, USER_AGENT};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout_at};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const AGENT: &str = concat!("holdpoint/", env!("CARGO_PKG_VERSION"));

/// An address that gets signed requests. It may contain a secret.
pub(crate) struct SignedPost {
    url: Url,
    client: Client,
    signer: Signer,
}

/// The envelope of a request.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    /// The id of the message.
    pub(crate) id: String,
    /// The time of the request.
    pub(crate) now: Timestamp,
    /// The key by which the service recognizes a repeated request.
    pub(crate) idempotency_key: Option<&'a str>,
}

/// Why a request has no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// No byte of it was sent, for this reason.
    NotSent(String),
    /// It may have been read, and no answer came, for this reason.
    Unknown(String),
}

impl Unanswered {
    /// No answer in time.
    pub(crate) fn late() -> Self {
        Self::Unknown("the service did not answer in time".to_owned())
    }
}

impl SignedPost {
    /// Prepares the client and sends nothing. The error is the reason why the URL cannot be used.
    pub(crate) fn new(url: &str, reach: &Reach, signer: &Signer) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|_| "it is not a valid URL".to_owned())?;
        let client = reach.client(&url)?;
        Ok(Self { url, client, signer: signer.clone() })
    }

    /// Returns the scheme, the host and the port, which contain no secret.
    pub(crate) fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Sends one request, once, and returns the head of the answer, at the latest `until` this time. The caller reads
    /// the body or drops it, which closes the connection. No error contains the URL.
    pub(crate) async fn send(
        &self,
        message: &Message<'_>,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<Response, Unanswered> {
        let Ok(headers) = self.headers(message, &body) else {
            return Err(Unanswered::NotSent("a value does not fit into a header".to_owned()));
        };
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        match timeout_at(until, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            // No byte of the request was written without a connection.
            Ok(Err(error)) if error.is_connect() => Err(Unanswered::NotSent(chain(error))),
            Ok(Err(error)) => Err(Unanswered::Unknown(chain(error))),
            Err(_elapsed) => Err(Unanswered::late()),
        }
    }

    fn headers(&self, message: &Message<'_>, body: &[u8]) -> Result<HeaderMap, InvalidHeaderValue> {
        let Message { id, now, idempotency_key } = message;
        let timestamp = now.as_micros().div_euclid(1_000_000).to_string();
        let signature = self.signer.sign(id, &timestamp, body);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(HeaderName::from_static(ID), id.parse()?);
        headers.insert(HeaderName::from_static(TIMESTAMP), timestamp.parse()?);
        headers.insert(HeaderName::from_static(SIGNATURE), signature.parse()?);
        if let Some(key) = idempotency_key {
            headers.insert(HeaderName::from_static(IDEMPOTENCY_KEY), key.parse()?);
        }
        continue_trace(&mut headers);
        Ok(headers)
    }
}
