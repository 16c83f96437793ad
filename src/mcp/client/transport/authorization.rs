//! The access tokens that an issuer gives holdpoint for a server (RFC 6749, 4.4).
//!
//! The secret goes to one issuer: the one of the entry, or the one that the server names first. A token is used until
//! shortly before its end, or until the server refuses it. One request for a token is sent at a time.

use crate::config::{ConfigError, McpOauth, McpServer, is_safe};
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::log::pace::Pace;
use crate::mcp::client::log::redaction::Redaction;
use crate::mcp::client::transport::metadata::{self, Challenge, OfServer};
use holdpoint_egress::{Reach, TokenRequests, token_error};
use oauth2::basic::BasicClient;
use oauth2::{AuthType, ClientId, ClientSecret, RequestTokenError, Scope, TokenResponse, TokenUrl};
use parking_lot::Mutex;
use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{RequestBuilder, Response, Url};
use secrecy::ExposeSecret;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long before its end a token is not used any more. Of a short one, half of its time.
const BEFORE_END: Duration = Duration::from_secs(30);
/// How long it may take to find the issuer and to get a token.
const FOUND_WITHIN: Duration = Duration::from_secs(30);
/// How long no token is asked for after a failure.
const REST: Duration = Duration::from_secs(1);
/// How many tokens are asked for at once, and then each second. A server may refuse every token.
const TOKENS_AT_ONCE: u32 = 16;
const TOKENS_PER_SECOND: u32 = 1;
/// The parameter that names the server for which a token is (RFC 8707).
const RESOURCE: &str = "resource";
const BASIC: &str = "client_secret_basic";
const POST: &str = "client_secret_post";

/// The tokens for one server, of all its sessions.
pub(in crate::mcp) struct Authorization {
    /// The name of the server.
    server: String,
    url: Url,
    config: McpOauth,
    /// The key of the section, for errors.
    key: String,
    reach: Reach,
    redaction: Redaction,
    log: Arc<LogRate>,
    pace: Pace,
    state: Mutex<State>,
    /// Locked by the request that asks for a token. Other requests wait for it, and then use the result.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    token: Option<Token>,
    /// The last challenge of the server. Without one, and without an issuer in the entry, it is not known who gives tokens.
    challenge: Option<Challenge>,
    /// The issuer that the server named first.
    issuer: Option<String>,
    failed_at: Option<Instant>,
}

struct Token {
    text: String,
    /// When it is not used any more, if the issuer says so.
    until: Option<Instant>,
}

/// There is no token. The log says why.
pub(in crate::mcp) struct NoToken;

/// Where a token is given, and for what.
struct TokenPlace {
    token_url: String,
    auth_type: AuthType,
    resource: Option<String>,
    scope: Option<String>,
}

impl Authorization {
    /// Prepares the requests for the tokens of the server with this entry. Sends nothing.
    pub(in crate::mcp) fn new(
        server: &McpServer,
        key: &str,
        config: &McpOauth,
        url: &Url,
        reach: &Reach,
        redaction: Redaction,
    ) -> Result<Self, ConfigError> {
        let key = format!("{key}.oauth");
        redaction.learn(config.secret(&key)?.expose_secret().to_owned());
        Ok(Self {
            server: server.name.clone(),
            url: url.clone(),
            config: config.clone(),
            key,
            reach: reach.clone(),
            redaction,
            log: Arc::new(LogRate::new(&server.name, "its access tokens")),
            pace: Pace::new(TOKENS_AT_ONCE, TOKENS_PER_SECOND),
            state: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the token for the next request. `None` before the first challenge of a server that has to name its issuer.
    pub(in crate::mcp) async fn token(&self) -> Result<Option<String>, NoToken> {
        if let Some(token) = self.fresh() {
            return Ok(Some(token));
        }
        let is_known = self.config.issuer.is_some() || self.config.token_url.is_some();
        if !is_known && self.state.lock().challenge.is_none() {
            return Ok(None);
        }
        let _alone = self.asking.lock().await;
        if let Some(token) = self.fresh() {
            return Ok(Some(token));
        }
        if self.state.lock().failed_at.is_some_and(|at| at.elapsed() < REST) {
            return Err(NoToken);
        }
        self.pace.one().await;
        let asked = timeout(FOUND_WITHIN, Box::pin(self.ask())).await;
        let asked = asked.unwrap_or_else(|_elapsed| Err("no answer in time".to_owned()));
        let mut state = self.state.lock();
        match asked {
            Ok(token) => {
                let text = token.text.clone();
                self.redaction.learn(text.clone());
                (state.token, state.failed_at) = (Some(token), None);
                Ok(Some(text))
            }
            Err(why) => {
                state.failed_at = Some(Instant::now());
                drop(state);
                if self.log.admits() {
                    let why = self.redaction.text(why);
                    tracing::warn!(server = self.server, why, "there is no access token for an MCP server");
                }
                Err(NoToken)
            }
        }
    }

    /// The server refused a request with this token, by this challenge. Returns another token, if there is one.
    pub(in crate::mcp) async fn after_refusal(
        &self,
        refused: Option<&str>,
        challenge: &str,
    ) -> Result<Option<String>, NoToken> {
        {
            let mut state = self.state.lock();
            state.challenge = Some(Challenge::parse(challenge));
            // Another request may have got the next one already.
            if state.token.as_ref().is_some_and(|token| Some(token.text.as_str()) == refused) {
                state.token = None;
            }
        }
        let next = self.token().await?;
        Ok(next.filter(|next| Some(next.as_str()) != refused))
    }

    fn fresh(&self) -> Option<String> {
        let state = self.state.lock();
        let token = state.token.as_ref()?;
        token.until.is_none_or(|until| Instant::now() < until).then(|| token.text.clone())
    }

    /// Asks the issuer for a token. The error is for the log.
    async fn ask(&self) -> Result<Token, String> {
        let place = self.place().await?;
        let url = TokenUrl::new(place.token_url).map_err(|error| error.to_string())?;
        if !is_safe(url.as_str()) {
            return Err(format!("{}: it is neither https:// nor on this machine", url.as_str()));
        }
        let requests = TokenRequests::by(self.reach.client(url.url())?);
        let secret = self.config.secret(&self.key).map_err(|error| error.to_string())?;
        self.redaction.learn(secret.expose_secret().to_owned());
        let client = BasicClient::new(ClientId::new(self.config.client_id.clone()))
            .set_client_secret(ClientSecret::new(secret.expose_secret().to_owned()))
            .set_auth_type(place.auth_type)
            .set_token_uri(url);
        let mut request = client.exchange_client_credentials();
        let scopes = place.scope.iter().flat_map(|scope| scope.split_whitespace());
        request = request.add_scopes(scopes.map(|scope| Scope::new(scope.to_owned())));
        if let Some(resource) = place.resource {
            request = request.add_extra_param(RESOURCE, resource);
        }
        let began = Instant::now();
        let given = request.request_async(&requests).await.map_err(|error| match &error {
            RequestTokenError::ServerResponse(response) => format!("the issuer said: {response}"),
            other => format!("the issuer gave none: {}", token_error(other)),
        })?;
        let lasts = given.expires_in().map(|lasts| lasts.saturating_sub(BEFORE_END.min(lasts / 2)));
        let until = lasts.and_then(|lasts| began.checked_add(lasts));
        Ok(Token { text: given.access_token().secret().clone(), until })
    }

    /// Finds where a token is given.
    async fn place(&self) -> Result<TokenPlace, String> {
        let McpOauth { scope, resource, .. } = &self.config;
        if let Some(token_url) = self.config.token_url.clone() {
            // RFC 6749, 2.3.1: every issuer takes this form of the secret.
            let auth_type = AuthType::BasicAuth;
            return Ok(TokenPlace { token_url, auth_type, resource: resource.clone(), scope: scope.clone() });
        }
        let challenge = self.state.lock().challenge.clone().unwrap_or_default();
        let of_server = metadata::of_server(&self.url, &challenge, &self.reach).await?;
        let issuer = self.issuer(of_server.as_ref())?;
        let of_issuer = metadata::of_issuer(&issuer, &self.reach).await?;
        let takes = |method: &str| {
            let methods = of_issuer.token_endpoint_auth_methods_supported.as_ref();
            // RFC 8414, 2: the default.
            methods.map_or(method == BASIC, |all| all.iter().any(|it| it == method))
        };
        let auth_type = match (takes(BASIC), takes(POST)) {
            (true, _) => AuthType::BasicAuth,
            (false, true) => AuthType::RequestBody,
            (false, false) => return Err(format!("{issuer} takes neither {BASIC} nor {POST}")),
        };
        let named = of_server.as_ref().and_then(|it| it.scopes_supported.as_ref()).map(|all| all.join(" "));
        let scope = scope.clone().or(challenge.scope).or(named);
        let own = || of_server.as_ref().map_or_else(|| self.url.to_string(), |it| it.resource.clone());
        let resource = Some(resource.clone().unwrap_or_else(own));
        Ok(TokenPlace { token_url: of_issuer.token_endpoint, auth_type, resource, scope })
    }

    /// Returns the issuer that gets the secret.
    fn issuer(&self, of_server: Option<&OfServer>) -> Result<String, String> {
        if let Some(issuer) = &self.config.issuer {
            return Ok(issuer.clone());
        }
        let named = match of_server {
            Some(of_server) => of_server.authorization_servers.first().cloned(),
            // As before the protocol version 2025-06-18.
            None => Some(self.url.origin().ascii_serialization()),
        };
        let named = named.ok_or_else(|| "it names no issuer; set oauth.issuer".to_owned())?;
        let mut state = self.state.lock();
        let first = state.issuer.get_or_insert_with(|| named.clone());
        match *first == named {
            true => Ok(named),
            false => Err(format!("it named the issuer {first}, and now {named}; set oauth.issuer")),
        }
    }
}

/// Sends a request, with a token if the entry says so, and once more with another token if the server refuses it. The
/// server has not read more of a refused request than its token.
pub(in crate::mcp) async fn send(
    authorization: Option<&Authorization>,
    request: RequestBuilder,
) -> Result<Response, Unsent> {
    let Some(authorization) = authorization else { return Ok(request.send().await?) };
    let again = request.try_clone();
    let token = authorization.token().await?;
    let with = |request: RequestBuilder, token: &Option<String>| match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    let response = with(request, &token).send().await?;
    let Some(challenge) = challenge_of(&response) else { return Ok(response) };
    match (again, authorization.after_refusal(token.as_deref(), &challenge).await?) {
        (Some(again), next @ Some(_)) => Ok(with(again, &next).send().await?),
        _ => Ok(response),
    }
}

/// Returns the challenges of a response that refuses the credentials of its request.
pub(in crate::mcp) fn challenge_of(response: &Response) -> Option<String> {
    let all = || response.headers().get_all(WWW_AUTHENTICATE).into_iter();
    let texts = || all().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    (response.status().as_u16() == 401).then(|| texts().collect::<Vec<_>>().join(", "))
}

/// Why a request has no response.
pub(in crate::mcp) enum Unsent {
    /// Nothing was sent.
    NoToken,
    Failed(reqwest::Error),
}

impl From<NoToken> for Unsent {
    fn from(NoToken: NoToken) -> Self {
        Self::NoToken
    }
}

impl From<reqwest::Error> for Unsent {
    fn from(error: reqwest::Error) -> Self {
        Self::Failed(error)
    }
}
