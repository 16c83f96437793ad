//! Requests to the service of a tool.

use super::answer::Answered;
use crate::domain::clock::Timestamp;
use crate::egress::{Reach, chain, continue_trace};
use crate::standard_webhooks::{ID, SIGNATURE, Signer, TIMESTAMP};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, InvalidHeaderValue, USER_AGENT};
use reqwest::{Client, Response, Url};
use serde::Serialize;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
const AGENT: &str = concat!("holdpoint/", env!("CARGO_PKG_VERSION"));

/// An address of a service. It may contain a secret.
pub(super) struct Service {
    url: Url,
    client: Client,
    signer: Signer,
    /// How long the service has to answer, to the end of the body.
    timeout: Duration,
    /// The part of an answer that is read.
    answer_bytes: usize,
}

/// The envelope of a request.
#[derive(Debug)]
pub(super) struct Message<'a> {
    /// The id of the message.
    pub(super) id: String,
    /// The time of the request.
    pub(super) now: Timestamp,
    /// The key by which the service recognizes a repeated request.
    pub(super) idempotency_key: Option<&'a str>,
}

impl Service {
    /// Prepares the client and sends nothing. The error is the reason why the URL cannot be used.
    pub(super) fn new(
        url: &str,
        reach: &Reach,
        signer: &Signer,
        timeout: Duration,
        answer_bytes: usize,
    ) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|_| "it is not a valid URL".to_owned())?;
        let client = reach.client(&url)?;
        Ok(Self { url, client, signer: signer.clone(), timeout, answer_bytes })
    }

    /// Sends one request, once, and reads the answer. The log has the reason if there is none, without the URL,
    /// which may contain a secret.
    pub(super) async fn post(&self, message: &Message<'_>, body: &impl Serialize) -> Answered {
        let answered = self.exchange(message, body).await;
        match &answered {
            Answered::NotSent(why) => tracing::warn!(%why, "a request of an HTTP tool was not sent"),
            Answered::Unknown(why) => tracing::warn!(%why, "the outcome of an HTTP tool is unknown"),
            Answered::Status { .. } => {}
        }
        answered
    }

    async fn exchange(&self, message: &Message<'_>, body: &impl Serialize) -> Answered {
        let Ok(body) = serde_json::to_vec(body) else {
            return Answered::NotSent("the request cannot be written as JSON".to_owned());
        };
        let Ok(headers) = self.headers(message, &body) else {
            return Answered::NotSent("a value does not fit into a header".to_owned());
        };
        let until = Instant::now() + self.timeout;
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        match timeout_at(until, request.send()).await {
            Ok(Ok(response)) => self.read(response, until).await,
            // No byte of the request was written without a connection.
            Ok(Err(error)) if error.is_connect() => Answered::NotSent(chain(error)),
            Ok(Err(error)) => Answered::Unknown(chain(error)),
            Err(_elapsed) => Answered::late(),
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

    /// Reads the body up to the limit. The rest of a longer body stays unread, and the connection closes.
    async fn read(&self, mut response: Response, until: Instant) -> Answered {
        let (status, mut body) = (response.status().as_u16(), Vec::new());
        while body.len() <= self.answer_bytes {
            match timeout_at(until, response.chunk()).await {
                Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
                Ok(Ok(None)) => {
                    return Answered::Status {
                        status,
                        body: String::from_utf8_lossy(&body).into_owned(),
                        whole: true,
                    };
                }
                Ok(Err(error)) => return Answered::Unknown(chain(error)),
                Err(_elapsed) => return Answered::late(),
            }
        }
        Answered::Status { status, body: String::from_utf8_lossy(&body).into_owned(), whole: false }
    }
}
