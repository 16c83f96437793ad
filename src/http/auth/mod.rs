//! Who is calling. The front asks for every request, before it reads its body.

mod claims;
mod jwks;
pub(super) mod loopback;
mod signatures;
mod ticket;
mod token;
mod unknown;

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
use unknown::AuthFailure;
pub(in crate::http) use unknown::Unknown;

/// How callers are known.
#[derive(Debug)]
pub(crate) enum Authenticator {
    /// Everybody is the one user.
    Local {
        /// Whether only this machine may call.
        loopback_only: bool,
    },
    /// By a bearer token, or by a ticket that was got with one.
    Tokens(Box<Tokens>, Tickets),
}

/// Whether anybody may ask for this: what tells nothing of anybody. Whole paths, so that nothing behind one of them
/// is open as well.
pub(super) fn is_open(path: &str) -> bool {
    matches!(path, "/" | "/healthz" | "/readyz" | "/metrics" | "/openapi.json" | "/docs" | "/docs/")
}

impl Authenticator {
    /// The one that the configuration names, or what is in its way.
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

    /// Gets what will be needed; the server begins without it.
    pub(crate) fn prepare(&self) {
        if let Self::Tokens(tokens, _) = self {
            tokens.prepare();
        }
    }

    /// Who sends this request; `None` where anybody may, and it is not asked who. The database is not asked: requests
    /// without valid credentials cost it nothing.
    pub(super) async fn known(&self, request: &Request) -> Result<Option<Known>, ApiError> {
        let (tokens, tickets) = match self {
            Self::Local { loopback_only } => {
                // Probes come by any name, and learn nothing.
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

/// A caller who is known.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) principal: Principal,
    /// For how long that may be believed.
    pub(super) expiry: Expiry,
    /// What they are known by, if it is good once only: it has still to be used up.
    pub(super) ticket: Option<Unused>,
}

/// Until when a caller is known: streams end then. The front puts it there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expiry(pub(super) Option<Timestamp>);

impl Expiry {
    /// The same moment, as timers know it.
    pub(super) fn instant(self, clock: &dyn Clock) -> Option<Instant> {
        Some(Instant::now() + self.0?.since(clock.now()))
    }
}

impl<'a> FromRequest<'a> for Expiry {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(request.data::<Self>().copied().ok_or_else(ApiError::internal)?)
    }
}

/// The caller of a request, as the front has seen them. Every route takes one, so that the document says so.
pub(super) struct Caller(pub(super) Principal);

/// The name of the scheme in the document.
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
                     of 60 seconds. In mode `none` none is asked for.",
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
