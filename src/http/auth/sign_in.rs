//! The sign-in of people to the console: the authorization code flow of OpenID Connect with PKCE (RFC 6749, 4.1; RFC
//! 7636), as a public client.
//!
//! The result is the access token, which the server checks as the token of any other caller. The server does not read
//! the ID token: PKCE binds the code to the browser.

use super::begun::{Begun, Ended};
use super::places::{Places, network_of};
use super::session;
use super::signing::SigningKey;
use super::token::Tokens;
use crate::config::Config;
use crate::domain::clock::{Clock, Timestamp};
use crate::egress;
use crate::entropy::Entropy;
use crate::http::auth_failure::AuthFailure;
use crate::http::error;
use futures::FutureExt;
use futures::future::BoxFuture;
use oauth2::basic::{BasicClient, BasicRequestTokenError};
use oauth2::{
    AsyncHttpClient, AuthUrl, AuthorizationCode, ClientId, CsrfToken, HttpRequest, HttpResponse,
    PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RequestTokenError, Scope, TokenResponse, TokenUrl,
};
use parking_lot::Mutex;
use poem::http::{HeaderValue, header};
use poem::{Request, Response};
use reqwest::Url;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Where a browser begins.
pub(super) const PATH: &str = "/auth/sign-in";
/// Where the issuer sends it back to.
const CALLBACK_PATH: &str = "/auth/callback";
/// How long the addresses of the issuer are cached.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// Timeout for each response of the issuer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a response of the issuer, in bytes.
const BYTES_MAX: usize = 256 << 10;
/// How long the server does not ask for the addresses again after a failure.
const REST: Duration = Duration::from_secs(1);
/// The one method of RFC 7636 that the server uses.
const CHALLENGE_METHOD: &str = "S256";
/// The parameter that names the server for which the token is (RFC 8707). It belongs to both requests.
const RESOURCE: &str = "resource";
const SCOPE: &str = "scope";

/// The server as a client of the issuer.
#[derive(Debug)]
pub(super) struct SignIn {
    client_id: ClientId,
    issuer: String,
    params: BTreeMap<String, String>,
    /// The address of the console.
    home: String,
    callback: RedirectUrl,
    discovery: Url,
    client: reqwest::Client,
    known: Mutex<Known>,
    /// Locked by the request that asks for the addresses. Other requests wait for it, and then use the result.
    discovering: tokio::sync::Mutex<()>,
    /// The sign-ins that came back to this process.
    ended: Ended,
    places: Places,
    key: SigningKey,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

/// What the server knows of the issuer.
#[derive(Debug, Default)]
struct Known {
    found: Option<(Found, Timestamp)>,
    failed_at: Option<Timestamp>,
}

/// The addresses of the issuer.
#[derive(Debug, Clone)]
struct Found {
    authorization: AuthUrl,
    token: TokenUrl,
    /// Sends the requests to the address of tokens.
    client: Issuer,
}

/// Sends requests to an address of the issuer.
#[derive(Debug, Clone)]
struct Issuer(reqwest::Client);

/// The part of the discovery document that the server reads (OpenID Connect Discovery 1.0, 3).
#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    /// Absent if the issuer does not say what it supports (RFC 8414, 2).
    code_challenge_methods_supported: Option<Vec<String>>,
}

/// Why a sign-in failed. The console shows a text for each word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    /// This browser did not begin the sign-in, or began it too long ago.
    NotStarted,
    /// The issuer refused.
    Refused,
    /// The issuer could not be asked.
    Unavailable,
    /// The server does not accept the token.
    NotAccepted,
    /// The token is too long for a cookie.
    TooLong,
}

impl Failed {
    fn word(self) -> &'static str {
        match self {
            Self::NotStarted => "not-started",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::NotAccepted => "not-accepted",
            Self::TooLong => "too-long",
        }
    }
}

/// A failed request to the issuer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unreachable(String);

/// Whether the path is a step of a sign-in.
pub(super) fn is_step(path: &str) -> bool {
    matches!(path, PATH | CALLBACK_PATH)
}

impl SignIn {
    /// Returns `None` if the configuration names no client.
    pub(super) fn new(
        config: &Config,
        key: SigningKey,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Option<Self>, String> {
        let (auth, url) = (&config.auth, config.server.public_url.as_deref().unwrap_or_default());
        let Some(client_id) = auth.client_id.clone() else { return Ok(None) };
        let callback = RedirectUrl::new(format!("{url}{CALLBACK_PATH}"));
        let issuer = auth.issuer.clone().unwrap_or_default();
        let discovery = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
        let discovery = Url::parse(&discovery).map_err(|error| format!("auth.issuer: {error}"))?;
        Ok(Some(Self {
            client_id: ClientId::new(client_id),
            issuer,
            params: auth.sign_in_params.clone(),
            home: format!("{url}/"),
            callback: callback.map_err(|error| format!("server.public_url: {error}"))?,
            client: egress::client(&discovery)?,
            discovery,
            known: Mutex::default(),
            discovering: tokio::sync::Mutex::default(),
            ended: Ended::default(),
            places: Places::default(),
            key,
            clock,
            entropy,
        }))
    }

    /// Answers a GET of a step.
    pub(super) async fn answer(&self, request: &Request, tokens: &Tokens) -> Response {
        let (to, cookies) = match request.uri().path() {
            PATH => match self.begin().await {
                Ok((to, cookie)) => (to, vec![cookie]),
                Err(failed) => (self.address_of(failed), Vec::new()),
            },
            _ => match self.end(request, tokens).await {
                Ok(cookie) => (self.home.clone(), vec![cookie, Begun::END]),
                // The cookie may belong to another sign-in, which continues.
                Err(Failed::NotStarted) => (self.address_of(Failed::NotStarted), Vec::new()),
                Err(failed) => (self.address_of(failed), vec![Begun::END]),
            },
        };
        let mut response = error::see_other(&to);
        response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for cookie in cookies {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        response
    }

    /// Returns the address at which the console shows the failure.
    fn address_of(&self, failed: Failed) -> String {
        format!("{}#/sign-in/{}", self.home, failed.word())
    }

    /// Returns the address at which the person signs in, and the cookie of the sign-in.
    async fn begin(&self) -> Result<(String, HeaderValue), Failed> {
        let found = self.found().await?;
        let secrets = self.entropy.secret().zip(self.entropy.secret());
        let (state, verifier) = secrets.ok_or(Failed::Unavailable)?;
        let client = BasicClient::new(self.client_id.clone())
            .set_auth_uri(found.authorization)
            .set_redirect_uri(self.callback.clone());
        let challenge =
            PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(verifier.clone()));
        let begun = Begun { state: state.clone(), verifier, at: self.clock.now() };
        let mut request = client.authorize_url(|| CsrfToken::new(state)).set_pkce_challenge(challenge);
        let scopes = self.params.get(SCOPE).map_or("openid", String::as_str);
        request = request.add_scopes(scopes.split_whitespace().map(|scope| Scope::new(scope.to_owned())));
        for (name, value) in self.params.iter().filter(|(name, _)| *name != SCOPE) {
            request = request.add_extra_param(name, value);
        }
        let (url, _) = request.url();
        Ok((url.into(), begun.cookie(&self.key).ok_or(Failed::Unavailable)?))
    }

    /// Returns the cookie of the session.
    async fn end(&self, request: &Request, tokens: &Tokens) -> Result<HeaderValue, Failed> {
        let query = request.uri().query().unwrap_or_default();
        let sent: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).collect();
        let now = self.clock.now();
        let begun = Begun::of(request.headers(), &self.key, now).ok_or(Failed::NotStarted)?;
        if sent.get("state").map(AsRef::as_ref) != Some(begun.state.as_str()) {
            return Err(Failed::NotStarted);
        }
        // The response of another issuer (RFC 9207).
        if sent.get("iss").is_some_and(|issuer| *issuer != self.issuer) {
            return Err(Failed::Refused);
        }
        let Some(code) = sent.get("code") else {
            let error = sent.get("error").map(AsRef::as_ref).unwrap_or_default();
            tracing::warn!(error, "the issuer refused a sign-in");
            return Err(Failed::Refused);
        };
        if !self.ended.end(&begun, now) {
            return Err(Failed::NotStarted);
        }
        let Some(_place) = self.places.take(network_of(request)).await else {
            tracing::warn!("too many sign-ins at the same time");
            return Err(Failed::Unavailable);
        };
        let token = self.exchange(code, begun.verifier).await?;
        let known = tokens.check(&token).await.map_err(|failure| match failure {
            AuthFailure::NotKnown(why) => {
                tracing::warn!(%why, "the token of a sign-in is not accepted");
                Failed::NotAccepted
            }
            AuthFailure::KeysUnavailable => Failed::Unavailable,
        })?;
        session::begin(&token, known.expiry.0, &*self.clock).ok_or(Failed::TooLong)
    }

    /// Returns the access token for a code.
    async fn exchange(&self, code: &str, verifier: String) -> Result<String, Failed> {
        let found = self.found().await?;
        let client = BasicClient::new(self.client_id.clone())
            .set_token_uri(found.token)
            .set_redirect_uri(self.callback.clone());
        let mut request = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .set_pkce_verifier(PkceCodeVerifier::new(verifier));
        if let Some(resource) = self.params.get(RESOURCE) {
            request = request.add_extra_param(RESOURCE, resource);
        }
        let token = request.request_async(&found.client).await;
        let token = token.map_err(|error| {
            tracing::warn!(why = cause(&error), "the issuer gave no token for a code");
            match error {
                RequestTokenError::Request(_) => Failed::Unavailable,
                _ => Failed::Refused,
            }
        })?;
        Ok(token.access_token().secret().clone())
    }

    /// Returns the addresses of the issuer.
    async fn found(&self) -> Result<Found, Failed> {
        if let Some(found) = self.fresh() {
            return Ok(found);
        }
        let _alone = self.discovering.lock().await;
        if let Some(found) = self.fresh() {
            return Ok(found);
        }
        let now = self.clock.now();
        if self.known.lock().failed_at.is_some_and(|at| is_within(at, REST, now)) {
            return Err(Failed::Unavailable);
        }
        let found = self.discover().await;
        let mut known = self.known.lock();
        match found {
            Ok(found) => {
                *known = Known { found: Some((found.clone(), now)), failed_at: None };
                Ok(found)
            }
            Err(Unreachable(why)) => {
                tracing::warn!(why, "the addresses of the issuer could not be found (auth.issuer)");
                known.failed_at = Some(self.clock.now());
                Err(Failed::Unavailable)
            }
        }
    }

    fn fresh(&self) -> Option<Found> {
        let (found, at) = self.known.lock().found.clone()?;
        is_within(at, FRESH, self.clock.now()).then_some(found)
    }

    async fn discover(&self) -> Result<Found, Unreachable> {
        let request = self.client.get(self.discovery.clone()).header(header::ACCEPT, "application/json");
        let response = request.timeout(TIMEOUT).send().await?;
        if response.status() != 200 {
            return Err(Unreachable(format!("status {}", response.status().as_u16())));
        }
        let body = egress::read(response, BYTES_MAX).await.map_err(Unreachable)?;
        let document: Document =
            serde_json::from_slice(&body).map_err(|error| Unreachable(error.to_string()))?;
        // A document of another issuer could send people elsewhere (OpenID Connect Discovery 1.0, 4.3).
        if document.issuer != self.issuer {
            return Err(Unreachable("the document is of another issuer".to_owned()));
        }
        // Nothing but the challenge binds a code to a browser.
        let methods = document.code_challenge_methods_supported;
        if methods.is_some_and(|methods| methods.iter().all(|method| method != CHALLENGE_METHOD)) {
            return Err(Unreachable("the issuer does not support PKCE with S256".to_owned()));
        }
        let [authorization, token] = [document.authorization_endpoint, document.token_endpoint];
        if ![&authorization, &token].into_iter().all(|url| crate::config::is_safe(url)) {
            return Err(Unreachable("an address is neither https:// nor on this machine".to_owned()));
        }
        let wrong = |error: url::ParseError| Unreachable(error.to_string());
        let (authorization, token) =
            (AuthUrl::new(authorization).map_err(wrong)?, TokenUrl::new(token).map_err(wrong)?);
        let client = Issuer(egress::client(token.url()).map_err(Unreachable)?);
        Ok(Found { authorization, token, client })
    }
}

/// Whether the moment is at most this long ago. A moment in the future means that the clock was put back.
fn is_within(moment: Timestamp, length: Duration, now: Timestamp) -> bool {
    moment <= now && now < moment.plus(length)
}

impl From<reqwest::Error> for Unreachable {
    fn from(error: reqwest::Error) -> Self {
        Self(egress::chain(error))
    }
}

impl Issuer {
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, Unreachable> {
        let mut request = reqwest::Request::try_from(request)?;
        *request.timeout_mut() = Some(TIMEOUT);
        let response = self.0.execute(request).await?;
        let mut shaped = HttpResponse::new(Vec::new());
        *shaped.status_mut() = response.status();
        *shaped.headers_mut() = response.headers().clone();
        *shaped.body_mut() = egress::read(response, BYTES_MAX).await.map_err(Unreachable)?;
        Ok(shaped)
    }
}

impl<'c> AsyncHttpClient<'c> for Issuer {
    type Error = Unreachable;
    type Future = BoxFuture<'c, Result<HttpResponse, Unreachable>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        self.send(request).boxed()
    }
}

/// Returns the cause of a failed exchange. The text of the issuer is left out, because it may contain the code or a
/// token.
fn cause(error: &BasicRequestTokenError<Unreachable>) -> String {
    match error {
        RequestTokenError::Request(Unreachable(why)) => why.clone(),
        RequestTokenError::ServerResponse(response) => response.error().to_string(),
        RequestTokenError::Parse(why, _) => why.path().to_string(),
        RequestTokenError::Other(why) => why.clone(),
    }
}
