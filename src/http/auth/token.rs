//! Bearer tokens (RFC 6750) that are JWTs (RFC 7519).
//!
//! Nothing in a token says how it is to be checked: its `alg` only has to be one that is allowed and that fits the
//! key, and what its header has of keys and of where to find them is not looked at.

use super::claims::Claims;
use super::jwks::Jwks;
use crate::agent::Tasks;
use crate::config::Auth;
use crate::domain::Principal;
use crate::domain::clock::{Clock, Timestamp};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use poem::http::HeaderMap;
use poem::http::header::AUTHORIZATION;
use secrecy::ExposeSecret;
use serde_json::{Map, Value};
use std::sync::Arc;

/// By how much clocks may differ, in seconds.
pub(super) const LEEWAY_SECONDS: u64 = 60;
/// What an access token says that it is, if it says so (RFC 9068, 2.1).
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];

/// Why a request is not answered. The texts are for the log, and have nothing of the token.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is not known who calls.
    NotKnown(String),
    /// Nor can it be, as long as the issuer cannot be asked.
    KeysUnavailable,
}

impl Refusal {
    pub(super) fn not_known(why: impl Into<String>) -> Self {
        Self::NotKnown(why.into())
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        // The words of a parser may repeat what it read.
        match error.kind() {
            ErrorKind::Base64(_) | ErrorKind::Json(_) | ErrorKind::Utf8(_) => {
                Self::not_known("the token cannot be read")
            }
            kind => Self::NotKnown(format!("{kind:?}")),
        }
    }
}

/// Knows callers by their tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    keys: Keys,
    issuer: String,
    audience: String,
    claims: Claims,
    clock: Arc<dyn Clock>,
}

/// What signatures are checked with.
#[derive(Debug)]
enum Keys {
    /// A secret that the issuer has too.
    Secret(DecodingKey),
    /// What the issuer publishes.
    Published(Jwks),
}

impl Tokens {
    pub(super) fn new(auth: &Auth, clock: Arc<dyn Clock>, tasks: Tasks) -> Result<Self, String> {
        let keys = match (&auth.secret, &auth.jwks_url) {
            (Some(secret), None) => Keys::Secret(DecodingKey::from_secret(secret.expose_secret().as_bytes())),
            (None, Some(url)) => Keys::Published(Jwks::new(url.clone(), clock.clone(), tasks)?),
            _ => return Err("expected either a secret or a jwks_url".to_owned()),
        };
        Ok(Self {
            keys,
            issuer: auth.issuer.clone().unwrap_or_default(),
            audience: auth.audience.clone().unwrap_or_default(),
            claims: Claims::new(auth),
            clock,
        })
    }

    /// Gets what will be needed, so that the first caller need not wait for it.
    pub(super) fn prepare(&self) {
        if let Keys::Published(jwks) = &self.keys {
            jwks.freshen();
        }
    }

    /// Who sends a request with these headers, and until when their token is taken.
    pub(super) async fn principal(&self, headers: &HeaderMap) -> Result<(Principal, Timestamp), Refusal> {
        let token = bearer(headers)?;
        let header = jsonwebtoken::decode_header(token)?;
        check_header(&header)?;
        let (key, algorithm) = self.key(&header).await?;
        let claims = jsonwebtoken::decode(token, &key, &self.validation(algorithm))?.claims;
        self.check_more(&claims)?;
        Ok((self.claims.principal(&claims)?, taken_until(&claims)))
    }

    /// The key that this has to be signed with, and how.
    async fn key(&self, header: &Header) -> Result<(DecodingKey, Algorithm), Refusal> {
        match &self.keys {
            Keys::Secret(key) => Ok((key.clone(), Algorithm::HS256)),
            Keys::Published(jwks) => jwks.find(header).await,
        }
    }

    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        validation
    }

    /// What the library does not look at.
    fn check_more(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        // It takes a list of issuers too, which the issuer's name is one of.
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err(Refusal::not_known("iss is not the issuer"));
        }
        let now = self.clock.now().as_micros() / 1_000_000;
        let latest = (now as f64) + (LEEWAY_SECONDS as f64);
        match claims.get("iat").map(Value::as_f64) {
            None => {}
            Some(Some(issued)) if issued <= latest => {}
            Some(_) => return Err(Refusal::not_known("iat is no time, or in the future")),
        }
        Ok(())
    }
}

/// When a token with these claims, which have been looked at, is not taken any more.
fn taken_until(claims: &Map<String, Value>) -> Timestamp {
    let seconds = claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
    let micros = (seconds + LEEWAY_SECONDS as f64) * 1e6;
    Timestamp::from_micros(micros as i64)
}

/// The one token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else {
        return Err(Refusal::not_known("there is not one Authorization header"));
    };
    let parts = only.to_str().ok().and_then(|only| only.split_once(' '));
    match parts {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("Bearer") => Ok(token.trim_start_matches(' ')),
        _ => Err(Refusal::not_known("the Authorization header is no bearer token")),
    }
}

fn check_header(header: &Header) -> Result<(), Refusal> {
    // Whoever does not understand what is critical must not take the token (RFC 7515, 4.1.11), and there is nothing
    // of that kind that is understood here.
    if header.crit.is_some() {
        return Err(Refusal::not_known("crit is there"));
    }
    match &header.typ {
        Some(typ) if !TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known)) => {
            Err(Refusal::not_known("typ is not that of an access token"))
        }
        _ => Ok(()),
    }
}
