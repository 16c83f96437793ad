//! The issuer as a server of OpenID Connect: its addresses, and the requests to it. The server is a public client of it.

use crate::config::{self, Config};
use crate::http::auth::failure::AuthFailure;
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_egress::{ISSUER_BYTES_MAX, ISSUER_TIMEOUT, TokenRequests, Unreachable, token_error};
use oauth2::basic::{
    BasicErrorResponse, BasicErrorResponseType, BasicRevocationErrorResponse,
    BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AuthUrl, AuthorizationCode, Client, ClientId, CsrfToken, ExtraTokenFields, PkceCodeChallenge,
    PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, Scope, StandardRevocableToken,
    StandardTokenResponse, TokenResponse, TokenUrl,
};
use parking_lot::Mutex;
use poem::http::header;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How long the addresses of the issuer are cached.
const FRESH: Duration = Duration::from_secs(60 * 60);
/// Timeout for each response of the issuer.
pub(in crate::http::auth) const TIMEOUT: Duration = ISSUER_TIMEOUT;
/// How long the server does not ask for the addresses again after a failure.
const REST: Duration = Duration::from_secs(1);
/// The one method of RFC 7636 that the server uses.
const CHALLENGE_METHOD: &str = "S256";
/// The parameter that names the server for which the token is (RFC 8707). It belongs to all requests for tokens.
const RESOURCE: &str = "resource";
const SCOPE: &str = "scope";

/// The issuer.
#[derive(Debug)]
pub(in crate::http::auth) struct Issuer {
    client_id: ClientId,
    /// The name that the issuer has in its tokens.
    pub(in crate::http::auth) name: String,
    params: BTreeMap<String, String>,
    callback: RedirectUrl,
    discovery: Url,
    client: reqwest::Client,
    known: Mutex<CachedAddresses>,
    /// Locked by the request that asks for the addresses. Other requests wait for it, and then use the result.
    discovering: tokio::sync::Mutex<()>,
    clock: Arc<dyn Clock>,
}

/// What the server knows of the issuer.
#[derive(Debug, Default)]
struct CachedAddresses {
    found: Option<(IssuerAddresses, Timestamp)>,
    failed_at: Option<Timestamp>,
}

/// The addresses of the issuer.
#[derive(Debug, Clone)]
struct IssuerAddresses {
    authorization: AuthUrl,
    token: TokenUrl,
    /// Where a token is revoked (RFC 7009), if the issuer has such an address.
    revocation: Option<Url>,
    /// Where a browser ends its session at the issuer (OpenID Connect RP-Initiated Logout 1.0), if there is such an
    /// address.
    end_session: Option<Url>,
    /// Where the issuer says what a token is worth (RFC 7662), if there is such an address.
    introspection: Option<Url>,
    /// Sends the requests to the address of tokens.
    client: TokenRequests,
}

/// The part of the discovery document that the server reads (OpenID Connect Discovery 1.0, 3).
#[derive(Deserialize)]
struct Document {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    revocation_endpoint: Option<String>,
    end_session_endpoint: Option<String>,
    introspection_endpoint: Option<String>,
    /// Absent if the issuer does not say what it supports (RFC 8414, 2).
    code_challenge_methods_supported: Option<Vec<String>>,
}

/// What the issuer gave for a code or for a refresh token.
#[derive(Debug)]
pub(in crate::http::auth) struct GrantedTokens {
    pub(in crate::http::auth) access_token: String,
    pub(in crate::http::auth) refresh_token: Option<String>,
    pub(in crate::http::auth) id_token: Option<String>,
    /// How long the access token lasts, if the issuer says so.
    pub(in crate::http::auth) expires_in: Option<Duration>,
}

/// Why the issuer gave no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http::auth) enum NotGranted {
    /// The issuer could not be asked.
    Unreachable,
    /// The code or the refresh token does not count, or no longer (`invalid_grant`).
    Invalid,
    /// The issuer answered something else, such as an error of its own.
    Failed,
}

/// The field that OpenID Connect adds to the answer for tokens.
#[derive(Debug, Clone, Deserialize, Serialize)]
struct WithIdToken {
    id_token: Option<String>,
}

impl ExtraTokenFields for WithIdToken {}

type Tokens = StandardTokenResponse<WithIdToken, BasicTokenType>;
type TokenClient = Client<
    BasicErrorResponse,
    Tokens,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
>;

impl Issuer {
    /// Returns the issuer of the configuration, to which this client belongs. It sends browsers back to `callback`.
    pub(in crate::http::auth) fn new(
        config: &Config,
        client_id: String,
        callback: String,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let auth = &config.auth;
        let callback = RedirectUrl::new(callback).map_err(|error| format!("server.public_url: {error}"))?;
        let name = auth.issuer.clone().unwrap_or_default();
        let discovery = format!("{}/.well-known/openid-configuration", name.trim_end_matches('/'));
        let discovery = Url::parse(&discovery).map_err(|error| format!("auth.issuer: {error}"))?;
        Ok(Self {
            client_id: ClientId::new(client_id),
            name,
            params: auth.sign_in_params.clone(),
            callback,
            client: holdpoint_egress::client(&discovery)?,
            discovery,
            known: Mutex::default(),
            discovering: tokio::sync::Mutex::default(),
            clock,
        })
    }

    /// Returns the address at which a person signs in.
    pub(in crate::http::auth) async fn sign_in_url(
        &self,
        state: String,
        verifier: String,
    ) -> Result<String, NotGranted> {
        let found = self.found().await?;
        let client =
            self.of_tokens().set_auth_uri(found.authorization).set_redirect_uri(self.callback.clone());
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(verifier));
        let mut request = client.authorize_url(|| CsrfToken::new(state)).set_pkce_challenge(challenge);
        let scopes = self.params.get(SCOPE).map_or("openid", String::as_str);
        request = request.add_scopes(scopes.split_whitespace().map(|scope| Scope::new(scope.to_owned())));
        for (name, value) in self.params.iter().filter(|(name, _)| *name != SCOPE) {
            request = request.add_extra_param(name, value);
        }
        Ok(request.url().0.into())
    }

    /// Returns the tokens for a code.
    pub(in crate::http::auth) async fn exchange(
        &self,
        code: String,
        verifier: String,
    ) -> Result<GrantedTokens, NotGranted> {
        let found = self.found().await?;
        let client = self.of_tokens().set_token_uri(found.token).set_redirect_uri(self.callback.clone());
        let mut request = client
            .exchange_code(AuthorizationCode::new(code))
            .set_pkce_verifier(PkceCodeVerifier::new(verifier));
        if let Some(resource) = self.params.get(RESOURCE) {
            request = request.add_extra_param(RESOURCE, resource);
        }
        granted(request.request_async(&found.client).await, "a code")
    }

    /// Returns new tokens for a refresh token. Many issuers take a refresh token once, and give the next one.
    pub(in crate::http::auth) async fn refresh(&self, token: String) -> Result<GrantedTokens, NotGranted> {
        let found = self.found().await?;
        let (client, token) = (self.of_tokens().set_token_uri(found.token), RefreshToken::new(token));
        let mut request = client.exchange_refresh_token(&token);
        if let Some(resource) = self.params.get(RESOURCE) {
            request = request.add_extra_param(RESOURCE, resource);
        }
        granted(request.request_async(&found.client).await, "a refresh token")
    }

    /// Revokes a refresh token (RFC 7009). Does nothing if the issuer has no address for that.
    pub(in crate::http::auth) async fn revoke(&self, token: &str) -> Result<(), Unreachable> {
        let found = self.found().await.map_err(|_| Unreachable("its addresses are not known".to_owned()))?;
        let Some(url) = found.revocation else { return Ok(()) };
        self.post_token(url, token, "refresh_token").await?;
        Ok(())
    }

    /// Returns what the issuer says about an access token (RFC 7662).
    pub(in crate::http::auth) async fn introspect(
        &self,
        token: &str,
    ) -> Result<Map<String, Value>, AuthFailure> {
        let found = self.found().await.map_err(|_| AuthFailure::IssuerUnavailable)?;
        let answer = match found.introspection {
            Some(url) => self.post_token(url, token, "access_token").await,
            None => Err(Unreachable("it has no introspection_endpoint".to_owned())),
        };
        let read = answer
            .and_then(|body| serde_json::from_slice(&body).map_err(|error| Unreachable(error.to_string())));
        read.map_err(|Unreachable(why)| {
            tracing::warn!(why, "the issuer does not say what a token is worth (auth.session_from)");
            AuthFailure::IssuerUnavailable
        })
    }

    /// Sends a token to an address of the issuer, and returns the body of the answer.
    async fn post_token(&self, to: Url, token: &str, kind: &str) -> Result<Vec<u8>, Unreachable> {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("client_id", &self.client_id)
            .append_pair("token", token)
            .append_pair("token_type_hint", kind)
            .finish();
        let request = holdpoint_egress::client(&to).map_err(Unreachable)?.post(to).timeout(TIMEOUT);
        let form = "application/x-www-form-urlencoded";
        let response = request.header(header::CONTENT_TYPE, form).body(body).send().await?;
        match response.status().as_u16() {
            200..=299 => holdpoint_egress::read(response, ISSUER_BYTES_MAX).await.map_err(Unreachable),
            status => Err(Unreachable(format!("status {status}"))),
        }
    }

    /// The name of the server at the issuer.
    pub(in crate::http::auth) fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Returns the address at which a browser ends the session of a person at the issuer, if the issuer has one.
    pub(in crate::http::auth) async fn end_session_url(&self, id_token: Option<&str>) -> Option<String> {
        let mut url = self.found().await.ok()?.end_session?;
        url.query_pairs_mut().append_pair("client_id", &self.client_id);
        if let Some(id_token) = id_token {
            url.query_pairs_mut().append_pair("id_token_hint", id_token);
        }
        Some(url.into())
    }

    fn of_tokens(&self) -> TokenClient {
        Client::new(self.client_id.clone())
    }

    async fn found(&self) -> Result<IssuerAddresses, NotGranted> {
        if let Some(found) = self.fresh() {
            return Ok(found);
        }
        let _alone = self.discovering.lock().await;
        if let Some(found) = self.fresh() {
            return Ok(found);
        }
        let now = self.clock.now();
        if self.known.lock().failed_at.is_some_and(|at| is_within(at, REST, now)) {
            return Err(NotGranted::Unreachable);
        }
        let found = self.discover().await;
        let mut known = self.known.lock();
        match found {
            Ok(found) => {
                *known = CachedAddresses { found: Some((found.clone(), now)), failed_at: None };
                Ok(found)
            }
            Err(Unreachable(why)) => {
                tracing::warn!(why, "the addresses of the issuer could not be found (auth.issuer)");
                known.failed_at = Some(self.clock.now());
                Err(NotGranted::Unreachable)
            }
        }
    }

    fn fresh(&self) -> Option<IssuerAddresses> {
        let (found, at) = self.known.lock().found.clone()?;
        is_within(at, FRESH, self.clock.now()).then_some(found)
    }

    async fn discover(&self) -> Result<IssuerAddresses, Unreachable> {
        let request = self.client.get(self.discovery.clone()).header(header::ACCEPT, "application/json");
        let response = request.timeout(TIMEOUT).send().await?;
        if response.status() != 200 {
            return Err(Unreachable(format!("status {}", response.status().as_u16())));
        }
        let body = holdpoint_egress::read(response, ISSUER_BYTES_MAX).await.map_err(Unreachable)?;
        let document: Document =
            serde_json::from_slice(&body).map_err(|error| Unreachable(error.to_string()))?;
        // A document of another issuer could send people elsewhere (OpenID Connect Discovery 1.0, 4.3).
        if document.issuer != self.name {
            return Err(Unreachable("the document is of another issuer".to_owned()));
        }
        // Nothing but the challenge binds a code to a browser.
        let methods = document.code_challenge_methods_supported;
        if methods.is_some_and(|methods| methods.iter().all(|method| method != CHALLENGE_METHOD)) {
            return Err(Unreachable("the issuer does not support PKCE with S256".to_owned()));
        }
        let [authorization, token] = [document.authorization_endpoint, document.token_endpoint];
        if ![&authorization, &token].into_iter().all(|url| config::is_safe(url)) {
            return Err(Unreachable("an address is neither https:// nor on this machine".to_owned()));
        }
        let wrong = |error: url::ParseError| Unreachable(error.to_string());
        let (authorization, token) =
            (AuthUrl::new(authorization).map_err(wrong)?, TokenUrl::new(token).map_err(wrong)?);
        let client = TokenRequests::by(holdpoint_egress::client(token.url()).map_err(Unreachable)?);
        let revocation = usable("revocation_endpoint", document.revocation_endpoint);
        let end_session = usable("end_session_endpoint", document.end_session_endpoint);
        let introspection = usable("introspection_endpoint", document.introspection_endpoint);
        Ok(IssuerAddresses { authorization, token, revocation, end_session, introspection, client })
    }
}

/// Returns an address that the server can do without. One that is not safe is left out.
fn usable(field: &str, address: Option<String>) -> Option<Url> {
    let address = address?;
    if !config::is_safe(&address) {
        tracing::warn!(field, "an address of the issuer is neither https:// nor on this machine; not used");
        return None;
    }
    Url::parse(&address).ok()
}

/// Whether the moment is at most this long ago. A moment in the future means that the clock was put back.
fn is_within(moment: Timestamp, length: Duration, now: Timestamp) -> bool {
    moment <= now && now < moment.plus(length)
}

type AnsweredTokens = Result<Tokens, RequestTokenError<Unreachable, BasicErrorResponse>>;

fn granted(answered: AnsweredTokens, asked_with: &str) -> Result<GrantedTokens, NotGranted> {
    let tokens = answered.map_err(|error| {
        tracing::warn!(asked_with, why = token_error(&error), "the issuer gave no tokens");
        match &error {
            RequestTokenError::Request(_) => NotGranted::Unreachable,
            RequestTokenError::ServerResponse(response)
                if *response.error() == BasicErrorResponseType::InvalidGrant =>
            {
                NotGranted::Invalid
            }
            _ => NotGranted::Failed,
        }
    })?;
    Ok(GrantedTokens {
        access_token: tokens.access_token().secret().clone(),
        refresh_token: tokens.refresh_token().map(|token| token.secret().clone()),
        id_token: tokens.extra_fields().id_token.clone(),
        expires_in: tokens.expires_in(),
    })
}
