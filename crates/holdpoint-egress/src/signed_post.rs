//! POST requests to other services, signed by Standard Webhooks.

use crate::standard_webhooks::{ID, SIGNATURE, Signer, TIMESTAMP};
use crate::{Post, Reach, RequestFailure};
use holdpoint_core::clock::Timestamp;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue};
use tokio::time::Instant;

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// An address that gets signed requests. It may contain a secret.
pub struct SignedPost {
    post: Post,
    signer: Signer,
}

/// The envelope of a request.
#[derive(Debug)]
pub struct Message<'a> {
    /// The id of the message.
    pub id: String,
    /// The time of the request.
    pub now: Timestamp,
    /// The key by which the service recognizes a repeated request.
    pub idempotency_key: Option<&'a str>,
}

impl SignedPost {
    /// Prepares the client and sends nothing. The error is the reason why the URL cannot be used.
    pub fn new(url: &str, reach: &Reach, signer: &Signer) -> Result<Self, String> {
        Ok(Self { post: Post::new(url, reach)?, signer: signer.clone() })
    }

    /// Returns the scheme, the host and the port, which contain no secret.
    pub fn origin(&self) -> String {
        self.post.origin()
    }

    /// Sends one request, as [`Post::send`].
    pub async fn send(
        &self,
        message: &Message<'_>,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<Response, RequestFailure> {
        let Ok(headers) = self.headers(message, &body) else {
            return Err(RequestFailure::NotSent("a value does not fit into a header".to_owned()));
        };
        self.post.send(headers, body, until).await
    }

    fn headers(&self, message: &Message<'_>, body: &[u8]) -> Result<HeaderMap, InvalidHeaderValue> {
        let Message { id, now, idempotency_key } = message;
        let timestamp = now.as_micros().div_euclid(1_000_000).to_string();
        let signature = self.signer.sign(id, &timestamp, body);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(HeaderName::from_static(ID), id.parse()?);
        headers.insert(HeaderName::from_static(TIMESTAMP), timestamp.parse()?);
        headers.insert(HeaderName::from_static(SIGNATURE), signature.parse()?);
        if let Some(key) = idempotency_key {
            headers.insert(HeaderName::from_static(IDEMPOTENCY_KEY), key.parse()?);
        }
        Ok(headers)
    }
}
