//! Requests to the address of an issuer that gives tokens, as the library `oauth2` makes them.

use super::{chain, read};
use futures::FutureExt;
use futures::future::BoxFuture;
use oauth2::basic::BasicErrorResponse;
use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse, RequestTokenError};
use std::time::Duration;

/// Timeout for each response of an issuer.
pub const ISSUER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response of an issuer, in bytes.
pub const ISSUER_BYTES_MAX: usize = 256 << 10;

/// Sends requests to an address of an issuer.
#[derive(Debug, Clone)]
pub struct TokenRequests(reqwest::Client);

/// A failed request to an issuer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

impl From<reqwest::Error> for Unreachable {
    fn from(error: reqwest::Error) -> Self {
        Self(chain(error))
    }
}

impl TokenRequests {
    /// Sends the requests by this client, which follows no redirects.
    pub fn by(client: reqwest::Client) -> Self {
        Self(client)
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Unreachable> {
        let mut request = reqwest::Request::try_from(request)?;
        *request.timeout_mut() = Some(ISSUER_TIMEOUT);
        let response = self.0.execute(request).await?;
        let mut shaped = HttpResponse::new(Vec::new());
        *shaped.status_mut() = response.status();
        *shaped.headers_mut() = response.headers().clone();
        *shaped.body_mut() = read(response, ISSUER_BYTES_MAX).await.map_err(Unreachable)?;
        Ok(shaped)
    }
}

impl<'c> AsyncHttpClient<'c> for TokenRequests {
    type Error = Unreachable;
    type Future = BoxFuture<'c, Result<HttpResponse, Unreachable>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        self.send(request).boxed()
    }
}

/// Returns the cause of a failed request for a token. The description by the issuer is left out, because it may contain the
/// code, a token or a secret.
pub fn token_error(error: &RequestTokenError<Unreachable, BasicErrorResponse>) -> String {
    match error {
        RequestTokenError::Request(Unreachable(why)) => why.clone(),
        RequestTokenError::ServerResponse(response) => response.error().to_string(),
        RequestTokenError::Parse(why, _) => why.path().to_string(),
        RequestTokenError::Other(why) => why.clone(),
    }
}
