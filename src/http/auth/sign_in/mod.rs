//! The steps of the sign-in of people to the console: the authorization code flow of OpenID Connect with PKCE (RFC 6749,
//! 4.1; RFC 7636), as a public client.
//!
//! The result is an access token, which the server checks as the token of any other caller. With `auth.session_key` the
//! server keeps what the issuer gave (see [`SignIns`]), else the cookie has the access token itself.

mod begun;
mod identity;
mod issuer;
mod places;
mod sealed;
mod sign_ins;

use super::SignInParts;
use super::network::network_of;
use super::session;
use super::signing::SigningKey;
use super::token::Tokens;
use crate::config::Config;
use crate::entropy::Entropy;
use crate::http::auth::failure::AuthFailure;
use crate::http::failure::error;
use crate::rate_limit::RateLimit;
use begun::{BegunSignIn, EndedSignIns};
use holdpoint_core::clock::Clock;
use identity::Identity;
use issuer::{Issuer, NotGranted};
use places::Places;
use poem::http::{HeaderValue, header};
use poem::{Request, Response};
use sealed::Seal;
pub(crate) use sign_ins::SignIns;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a browser begins.
pub(super) const PATH: &str = "/auth/sign-in";
/// Where the issuer sends it back to.
const CALLBACK_PATH: &str = "/auth/callback";

/// The steps of a sign-in.
#[derive(Debug)]
pub(super) struct SignIn {
    /// The address of the console.
    home: String,
    issuer: Arc<Issuer>,
    tokens: Arc<Tokens>,
    /// Where the server keeps the sign-ins, if it does.
    kept: Option<Arc<SignIns>>,
    /// The sign-ins that came back to this process.
    ended: EndedSignIns,
    places: Places,
    key: SigningKey,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

/// Why a sign-in failed. The console shows a text for each word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignInFailure {
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

impl SignInFailure {
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

impl From<NotGranted> for SignInFailure {
    fn from(why: NotGranted) -> Self {
        match why {
            NotGranted::Unreachable => Self::Unavailable,
            NotGranted::Invalid | NotGranted::Failed => Self::Refused,
        }
    }
}

impl From<AuthFailure> for SignInFailure {
    fn from(failure: AuthFailure) -> Self {
        match failure {
            AuthFailure::NotKnown(why) => {
                tracing::warn!(%why, "the token of a sign-in is not accepted");
                Self::NotAccepted
            }
            AuthFailure::KeysUnavailable | AuthFailure::IssuerUnavailable | AuthFailure::TooOften(_) => {
                Self::Unavailable
            }
            AuthFailure::Store(error) => {
                tracing::error!(%error, "a sign-in could not be stored");
                Self::Unavailable
            }
        }
    }
}

/// The paths of all steps. Each takes a GET alone: a HEAD must use up no code.
pub(in crate::http) const STEPS: [&str; 2] = [PATH, CALLBACK_PATH];

pub(super) fn is_step(path: &str) -> bool {
    STEPS.contains(&path)
}

impl SignIn {
    /// Returns the steps of a sign-in, if the configuration has a client at the issuer.
    pub(super) fn new(config: &Config, parts: SignInParts) -> Result<Option<Self>, String> {
        let auth = &config.auth;
        let Some(client_id) = auth.client_id.clone() else { return Ok(None) };
        let SignInParts { tokens, store, key, tasks, clock, entropy } = parts;
        let url = config.server.public_url.as_deref().unwrap_or_default();
        let issuer =
            Arc::new(Issuer::new(config, client_id, format!("{url}{CALLBACK_PATH}"), clock.clone())?);
        let kept = auth.session_key.clone().map(|session_key| {
            Arc::new(SignIns::new(sign_ins::KeptParts {
                store,
                issuer: issuer.clone(),
                identity: Identity {
                    from: auth.session_from,
                    tokens: tokens.clone(),
                    issuer: issuer.clone(),
                    clock: clock.clone(),
                },
                seal: Seal::new(session_key),
                key: key.clone(),
                lasts: auth.session_max,
                requests: RateLimit::new("requests", config.limits.caps(auth.mode).requests_per_minute),
                tasks,
                clock: clock.clone(),
                entropy: entropy.clone(),
            }))
        });
        let (home, ended, places) = (format!("{url}/"), EndedSignIns::default(), Places::default());
        Ok(Some(Self { home, issuer, tokens, kept, ended, places, key, clock, entropy }))
    }

    /// Returns the sign-ins that the server keeps, if it keeps any.
    pub(super) fn kept(&self) -> Option<&Arc<SignIns>> {
        self.kept.as_ref()
    }

    /// Answers a GET of a step.
    pub(super) async fn answer(&self, request: &Request) -> Response {
        let (to, cookies) = match request.uri().path() {
            PATH => match self.begin().await {
                Ok((to, cookie)) => (to, vec![cookie]),
                Err(failed) => (self.address_of(failed), Vec::new()),
            },
            _ => match self.end(request).await {
                Ok(cookie) => (self.home.clone(), vec![cookie, BegunSignIn::END]),
                // The cookie may belong to another sign-in, which continues.
                Err(SignInFailure::NotStarted) => (self.address_of(SignInFailure::NotStarted), Vec::new()),
                Err(failed) => (self.address_of(failed), vec![BegunSignIn::END]),
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
    fn address_of(&self, failed: SignInFailure) -> String {
        format!("{}#/sign-in/{}", self.home, failed.word())
    }

    /// Returns the address at which the person signs in, and the cookie of the sign-in.
    async fn begin(&self) -> Result<(String, HeaderValue), SignInFailure> {
        let secrets = self.entropy.secret().zip(self.entropy.secret());
        let (state, verifier) = secrets.ok_or(SignInFailure::Unavailable)?;
        let to = self.issuer.sign_in_url(state.clone(), verifier.clone()).await?;
        let begun = BegunSignIn { state, verifier, at: self.clock.now() };
        Ok((to, begun.cookie(&self.key).ok_or(SignInFailure::Unavailable)?))
    }

    /// Returns the cookie of the session.
    async fn end(&self, request: &Request) -> Result<HeaderValue, SignInFailure> {
        let query = request.uri().query().unwrap_or_default();
        let sent: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).collect();
        let now = self.clock.now();
        let begun = BegunSignIn::of(request.headers(), &self.key, now).ok_or(SignInFailure::NotStarted)?;
        if sent.get("state").map(AsRef::as_ref) != Some(begun.state.as_str()) {
            return Err(SignInFailure::NotStarted);
        }
        // The response of another issuer (RFC 9207).
        if sent.get("iss").is_some_and(|issuer| *issuer != self.issuer.name) {
            return Err(SignInFailure::Refused);
        }
        let Some(code) = sent.get("code") else {
            let error = sent.get("error").map(AsRef::as_ref).unwrap_or_default();
            tracing::warn!(error, "the issuer refused a sign-in");
            return Err(SignInFailure::Refused);
        };
        if !self.ended.end(&begun, now) {
            return Err(SignInFailure::NotStarted);
        }
        let Some(place) = self.places.take(network_of(request)).await else {
            tracing::warn!("too many sign-ins at the same time");
            return Err(SignInFailure::Unavailable);
        };
        let granted = self.issuer.exchange(code.to_string(), begun.verifier).await?;
        drop(place);
        if let Some(kept) = &self.kept {
            let browser = request.header(header::USER_AGENT).unwrap_or_default();
            return Ok(kept.begin(granted, browser).await?);
        }
        let known = self.tokens.check(&granted.access_token).await?;
        let cookie = session::cookie_of(&granted.access_token, known.expiry.0, &*self.clock);
        cookie.ok_or(SignInFailure::TooLong)
    }
}
