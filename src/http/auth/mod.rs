//! Who is calling. The front asks for every request, before it reads its body.

mod claims;
mod jwks;
pub(super) mod loopback;
mod ticket;
mod token;

use super::error::ApiError;
use crate::agent::Tasks;
use crate::config::{Auth, AuthMode, Config};
use crate::domain::Principal;
use crate::domain::clock::{Clock, Timestamp};
use crate::store::Store;
use poem::{FromRequest, Request, RequestBody, Result};
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use std::sync::Arc;
use token::{Refusal, Tokens};
use tokio::time::Instant;

/// How callers are known.
#[derive(Debug)]
pub(crate) enum Authenticator {
    /// Everybody is the one user.
    Local {
        /// Whether only this machine may call.
        loopback_only: bool,
    },
    /// By a bearer token.
    Tokens(Box<Tokens>),
}

/// Whether anybody may ask for this: what tells nothing of anybody. Whole paths, so that nothing behind one of them
/// is open as well.
pub(super) fn is_open(path: &str) -> bool {
    matches!(path, "/" | "/healthz" | "/readyz" | "/metrics" | "/openapi.json" | "/docs" | "/docs/")
}

impl Authenticator {
    /// The one that the configuration names, or what is in its way.
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>, tasks: Tasks) -> Result<Self, String> {
        let auth: &Auth = &config.auth;
        match auth.mode {
            AuthMode::None => Ok(Self::Local { loopback_only: config.faces_only_this_machine() }),
            AuthMode::Jwt => Ok(Self::Tokens(Box::new(Tokens::new(auth, clock, tasks)?))),
        }
    }

    /// Gets what will be needed; the server begins without it.
    pub(crate) fn prepare(&self) {
        if let Self::Tokens(tokens) = self {
            tokens.prepare();
        }
    }

    /// Who sends this request, and for how long that may be believed; nobody, where anybody may and nobody is asked.
    pub(super) async fn principal(
        &self,
        request: &Request,
        store: &Store,
    ) -> Result<Option<(Principal, Expiry)>, ApiError> {
        match self {
            Self::Local { loopback_only } => {
                // Probes come by any name, and learn nothing.
                let probe = matches!(request.uri().path(), "/healthz" | "/readyz");
                if *loopback_only && !probe {
                    loopback::check(request)?;
                }
                Ok(Some((Principal::local(), Expiry(None))))
            }
            Self::Tokens(_) if is_open(request.uri().path()) => Ok(None),
            Self::Tokens(_) if let Some(ticket) = ticket::of(request) => {
                ticket::check_origin(request)?;
                Ok(Some(ticket::take(&ticket, store).await?))
            }
            Self::Tokens(tokens) => match tokens.principal(request.headers()).await {
                Ok((principal, expires_at)) => Ok(Some((principal, Expiry(Some(expires_at))))),
                Err(Refusal::NotKnown(why)) => {
                    tracing::debug!(%why, "the caller is not known");
                    Err(ApiError::unauthenticated())
                }
                Err(Refusal::KeysUnavailable) => Err(ApiError::keys_unavailable()),
            },
        }
    }
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
                    "An access token of the issuer that the server trusts. In mode `none` none is asked for.",
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
