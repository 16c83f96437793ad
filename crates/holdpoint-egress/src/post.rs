//! POST requests to addresses within the reach, and to those of the operator.

use super::{Reach, chain, client, continue_trace};
use reqwest::header::{HeaderMap, HeaderValue, USER_AGENT};
use reqwest::{Client, Response, Url};
use tokio::time::{Instant, timeout_at};

const AGENT: &str = concat!("holdpoint/", env!("CARGO_PKG_VERSION"));

/// An address that gets POST requests. It may contain a secret.
pub struct Post {
    url: Url,
    client: Client,
}

/// Why a request has no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// No byte of it was sent, for this reason.
    NotSent(String),
    /// It may have been read, and no answer came, for this reason.
    Unknown(String),
}

impl RequestFailure {
    /// No answer in time.
    pub fn late() -> Self {
        Self::Unknown("the service did not answer in time".to_owned())
    }
}

impl Post {
    /// Prepares the client and sends nothing. The error is the reason why the URL cannot be used.
    pub fn new(url: &str, reach: &Reach) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|_| "it is not a valid URL".to_owned())?;
        let client = reach.client(&url)?;
        Ok(Self { url, client })
    }

    /// Prepares the client for an address of the operator, which no reach restricts, and sends nothing.
    pub fn to_operator(url: Url) -> Result<Self, String> {
        let client = client(&url)?;
        Ok(Self { url, client })
    }

    /// Returns another address of the same client.
    pub fn at(&self, url: Url) -> Self {
        Self { url, client: self.client.clone() }
    }

    /// Returns the scheme, the host and the port, which contain no secret.
    pub fn origin(&self) -> String {
        self.url.origin().ascii_serialization()
    }

    /// Sends one request, once, and returns the head of the answer, at the latest `until` this time. The caller reads
    /// the body or drops it, which closes the connection. No error contains the URL.
    pub async fn send(
        &self,
        mut headers: HeaderMap,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<Response, RequestFailure> {
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        continue_trace(&mut headers);
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        match timeout_at(until, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            // No byte of the request was written without a connection.
            Ok(Err(error)) if error.is_connect() => Err(RequestFailure::NotSent(chain(error))),
            Ok(Err(error)) => Err(RequestFailure::Unknown(chain(error))),
            Err(_elapsed) => Err(RequestFailure::late()),
        }
    }
}
