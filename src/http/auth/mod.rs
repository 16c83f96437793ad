//! Authentication. The middleware authenticates each request before it reads the body.
//!
//! Of this module only `sign_ins` reads rows, for a cookie with a signature of the servers: bad credentials cost the
//! database nothing. A token does not choose how it is verified.

mod claims;
pub(in crate::http) mod failure;
mod jwks;
pub(in crate::http) mod loopback;
mod network;
mod reporter;
mod session;
pub(in crate::http) mod session_routes;
#[cfg(feature = "console")]
mod sign_in;
#[cfg(not(feature = "console"))]
#[path = "no_sign_in.rs"]
mod sign_in;
mod signatures;
mod signing;
mod ticket;
mod token;
mod validity;

use crate::agent::Tasks;
use crate::config::{Auth, AuthMode, Config};
use crate::entropy::Entropy;
use crate::http::access;
use crate::http::auth::failure::AuthFailure;
use crate::http::failure::error::ApiError;
use crate::http::routes::console;
use holdpoint_core::Principal;
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_store::Store;
pub(in crate::http) use network::{Network, network_of};
use poem::http::Method;
use poem::http::header::AUTHORIZATION;
use poem::{FromRequest, IntoResponse, Request, RequestBody, Response, Result};
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
pub(in crate::http) use reporter::Reporter;
pub(in crate::http) use session::{END, Session};
pub(in crate::http) use sign_in::STEPS;
use sign_in::SignIn;
pub(crate) use sign_in::SignIns;
use signing::SigningKey;
use std::sync::Arc;
pub(crate) use ticket::Tickets;
use ticket::UnusedTicket;
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
    /// By tokens.
    Tokens(Box<ByToken>),
}

/// How the server authenticates callers by tokens.
#[derive(Debug)]
pub(crate) struct ByToken {
    tokens: Arc<Tokens>,
    /// A ticket replaces the token of the caller that got it.
    tickets: Tickets,
    /// The sign-in of people, whose browsers have a cookie.
    sign_in: Option<SignIn>,
}

/// Whether a path is open without credentials, because its responses reveal no user data. Only whole paths
/// match, so that no path below an open path is open.
pub(in crate::http) fn is_open(path: &str) -> bool {
    access::is_for_everyone(path)
        || path == "/docs/"
        || sign_in::is_step(path)
        || console::paths().any(|file| file == path)
}

/// What the sign-ins of a server need besides the configuration.
struct SignInParts {
    tokens: Arc<Tokens>,
    store: Store,
    key: SigningKey,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Authenticator {
    /// Returns the authenticator that the configuration selects, or the reason why that fails.
    pub(crate) fn new(
        config: &Config,
        store: Store,
        clock: Arc<dyn Clock>,
        tasks: Tasks,
        tickets: Tickets,
        entropy: Arc<dyn Entropy>,
    ) -> Result<Self, String> {
        let auth: &Auth = &config.auth;
        match auth.mode {
            AuthMode::None => Ok(Self::Local { loopback_only: config.faces_only_this_machine() }),
            AuthMode::Jwt => {
                let tokens = Arc::new(Tokens::new(auth, clock.clone(), tasks.clone())?);
                let key = tickets.key().clone();
                let parts = SignInParts { tokens: tokens.clone(), store, key, tasks, clock, entropy };
                let sign_in = SignIn::new(config, parts)?;
                Ok(Self::Tokens(Box::new(ByToken { tokens, tickets, sign_in })))
            }
        }
    }

    /// Answers a step of a sign-in, or returns `None` for other requests.
    pub(in crate::http) async fn sign_in(&self, request: &Request) -> Option<Response> {
        let Self::Tokens(by_token) = self else { return None };
        let sign_in = by_token.sign_in.as_ref()?;
        if !sign_in::is_step(request.uri().path()) {
            return None;
        }
        // poem handles a HEAD as a GET, and a HEAD must use up no code.
        if request.method() != Method::GET {
            return Some(ApiError::method_not_allowed().into_response());
        }
        Some(sign_in.answer(request).await)
    }

    /// Returns the sign-ins that the server keeps, if it keeps any.
    pub(crate) fn sign_ins(&self) -> Option<Arc<SignIns>> {
        let Self::Tokens(by_token) = self else { return None };
        by_token.sign_in.as_ref()?.kept().cloned()
    }

    /// Starts to fetch the issuer's keys. The server starts without waiting for them.
    pub(crate) fn prepare(&self) {
        if let Self::Tokens(by_token) = self {
            by_token.tokens.prepare();
        }
    }

    /// Returns the caller of this request, or `None` for an open path, where the server checks no
    /// credentials. The database is read only for a cookie that the server has signed, so requests without valid
    /// credentials do not load it.
    pub(in crate::http) async fn known(&self, request: &Request) -> Result<Option<KnownCaller>, ApiError> {
        let ByToken { tokens, tickets, sign_in } = match self {
            Self::Local { loopback_only } => {
                // Probes use any host name, and their responses reveal nothing.
                let probe = matches!(request.uri().path(), "/healthz" | "/readyz");
                if *loopback_only && !probe {
                    loopback::check(request)?;
                }
                let principal = Principal::local();
                return Ok(Some(KnownCaller {
                    principal,
                    expiry: Expiry(None),
                    ticket: None,
                    session: None,
                }));
            }
            Self::Tokens(..) if is_open(request.uri().path()) => return Ok(None),
            Self::Tokens(by_token) => &**by_token,
        };
        let headers = request.headers();
        let by_cookie = sign_in.is_some() && !headers.contains_key(AUTHORIZATION);
        let known = if let Some(ticket) = ticket::of(request) {
            ticket::check_origin(request)?;
            tickets.read(&ticket).map_err(AuthFailure::from)
        } else if let Some(cookie) = session::value(headers).filter(|_| by_cookie) {
            let session = session::check(request, cookie)?;
            match sign_in.as_ref().and_then(SignIn::kept) {
                Some(kept) => kept.resume(cookie, session).await,
                None => {
                    tokens.check(cookie).await.map(|known| KnownCaller { session: Some(session), ..known })
                }
            }
        } else {
            tokens.known(headers).await
        };
        known.map(Some).map_err(|refusal| match refusal {
            AuthFailure::NotKnown(why) => {
                ApiError::unauthenticated(&why, sign_in.as_ref().map(|_| sign_in::PATH))
            }
            AuthFailure::KeysUnavailable => ApiError::keys_unavailable(),
            AuthFailure::IssuerUnavailable => ApiError::issuer_unavailable(),
            AuthFailure::TooOften(limited) => limited.into(),
            AuthFailure::Store(error) => error.into(),
        })
    }
}

/// An authenticated caller.
#[derive(Debug)]
pub(in crate::http) struct KnownCaller {
    pub(in crate::http) principal: Principal,
    /// How long the authentication is valid.
    pub(in crate::http) expiry: Expiry,
    /// The ticket of the caller, which still has to be used up.
    pub(in crate::http) ticket: Option<UnusedTicket>,
    /// The session of a browser.
    pub(in crate::http) session: Option<Session>,
}

/// When the authentication of a caller ends. Streams end at this time. The middleware sets it.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Expiry(pub(in crate::http) Option<Timestamp>);

impl Expiry {
    /// Returns the same moment as an instant of timers.
    pub(in crate::http) fn instant(self, clock: &dyn Clock) -> Option<Instant> {
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
pub(in crate::http) struct Caller(pub(in crate::http) Principal);

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
