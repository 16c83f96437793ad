//! Authentication. The middleware authenticates each request before it reads the body.

mod claims;
mod jwks;
pub(super) mod loopback;
mod signatures;
mod ticket;
mod token;

use super::auth_failure::AuthFailure;
use super::error::ApiError;
use crate::agent::Tasks;
use crate::config::{Auth, AuthMode, Config};
use crate::domain::Principal;
use crate::domain::clock::{Clock, Timestamp};
use poem::{FromRequest, Request, RequestBody, Result};
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use std::sync::Arc;
pub(crate) use ticket::Tickets;
use ticket::Unused;
use token::Tokens;
use tokio::time::Instant;

/// How the server authenticates callers.
#[derive(Debug)]
pub(crate) enum Authenticator {
    /// Every caller is the one local user.
    Local {
        /// Whether only this machine may call.
        loopback_only: bool,
    },
    /// By a bearer token, or by a ticket that a caller got with a token.
    Tokens(Box<Tokens>, Tickets),
}

/// Whether a path is open without credentials, because its responses reveal no user data. Only whole paths
/// match, so that no path below an open path is open.
pub(super) fn is_open(path: &str) -> bool {
    matches!(path, "/" | "/healthz" | "/readyz" | "/metrics" | "/openapi.json" | "/docs" | "/docs/")
}

impl Authenticator {
    /// Returns the authenticator that the configuration selects, or the reason why that fails.
    pub(crate) fn new(
        config: &Config,
        clock: Arc<dyn Clock>,
        tasks: Tasks,
        tickets: Tickets,
    ) -> Result<Self, String> {
        let auth: &Auth = &config.auth;
        match auth.mode {
            AuthMode::None => Ok(Self::Local { loopback_only: config.faces_only_this_machine() }),
            AuthMode::Jwt => Ok(Self::Tokens(Box::new(Tokens::new(auth, clock, tasks)?), tickets)),
        }
    }

    /// Starts to fetch the issuer's keys. The server starts without waiting for them.
    pub(crate) fn prepare(&self) {
        if let Self::Tokens(tokens, _) = self {
            tokens.prepare();
        }
    }

    /// Returns the caller of this request, or `None` for an open path, where the server checks no
    /// credentials. The database is not used, so requests without valid credentials do not load it.
    pub(super) async fn known(&self, request: &Request) -> Result<Option<Known>, ApiError> {
        let (tokens, tickets) = match self {
            Self::Local { loopback_only } => {
                // Probes use any host name, and their responses reveal nothing.
                let probe = matches!(request.uri().path(), "/healthz" | "/readyz");
                if *loopback_only && !probe {
                    loopback::check(request)?;
                }
                let principal = Principal::local();
                return Ok(Some(Known { principal, expiry: Expiry(None), ticket: None }));
            }
            Self::Tokens(..) if is_open(request.uri().path()) => return Ok(None),
            Self::Tokens(tokens, tickets) => (tokens, tickets),
        };
        let known = match ticket::of(request) {
            Some(ticket) => {
                ticket::check_origin(request)?;
                tickets.read(&ticket).map_err(AuthFailure::from)
            }
            None => tokens.known(request.headers()).await,
        };
        known.map(Some).map_err(|refusal| match refusal {
            AuthFailure::NotKnown(why) => ApiError::unauthenticated(&why),
            AuthFailure::KeysUnavailable => ApiError::keys_unavailable(),
        })
    }
}

/// An authenticated caller.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) principal: Principal,
    /// How long the authentication is valid.
    pub(super) expiry: Expiry,
    /// The ticket of the caller, which still has to be used up.
    pub(super) ticket: Option<Unused>,
}

/// When the authentication of a caller ends. Streams end at this time. The middleware sets it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry(pub(super) Option<Timestamp>);

impl Expiry {
    /// Returns the same moment as an instant of timers.
    pub(super) fn instant(self, clock: &dyn Clock) -> Option<Instant> {
        Some(Instant::now() + self.0?.since(clock.now()))
    }
}

impl<'a> FromRequest<'a> for Expiry {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(request.data::<Self>().copied().ok_or_else(ApiError::internal)?)
    }
}

/// The caller of a request, as the middleware authenticated them. Every route takes this extractor, so that
/// the OpenAPI document lists the security scheme.
pub(super) struct Caller(pub(super) Principal);

/// The name of the security scheme in the OpenAPI document.
const SCHEME: &str = "bearer";

impl<'a> ApiExtractor<'a> for Caller {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        registry.create_security_scheme(
            SCHEME,
            MetaSecurityScheme {
                ty: "http",
                description: Some(
                    "An access token of the issuer that the server trusts; `exp`, `nbf` and `iat` are taken with a leeway \
                     of 60 seconds. Mode `none` needs no token.",
                ),
                name: None,
                key_in: None,
                scheme: Some("bearer"),
                bearer_format: Some("JWT"),
                flows: None,
                openid_connect_url: None,
            },
        );
    }

    fn security_schemes() -> Vec<&'static str> {
        vec![SCHEME]
    }

    async fn from_request(
        request: &'a Request,
        _body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        let known = request.data::<Principal>().cloned();
        Ok(Self(known.ok_or_else(ApiError::internal)?))
    }
}
