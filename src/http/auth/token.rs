//! Bearer tokens (RFC 6750) that are JWTs (RFC 7519).
//!
//! A token does not control how the server checks it. Its `alg` must be an accepted algorithm that matches
//! the key. The server ignores keys, and addresses of keys, in the header of a token.

use super::claims::Claims;
use super::jwks::Jwks;
use super::signatures;
use super::{Expiry, Known};
use crate::agent::Tasks;
use crate::config::Auth;
use crate::domain::Principal;
use crate::domain::clock::{Clock, Timestamp};
use crate::http::auth_failure::{AuthFailure, Unknown};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use poem::http::HeaderMap;
use poem::http::header::AUTHORIZATION;
use secrecy::ExposeSecret;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Accepted difference between clocks, in seconds.
pub(super) const LEEWAY_SECONDS: u64 = 60;
/// The accepted values of `typ`, if a token has one (RFC 9068, 2.1).
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];

/// Authenticates callers by their tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    keys: Keys,
    issuer: String,
    audience: String,
    claims: Claims,
    clock: Arc<dyn Clock>,
}

/// The keys that check signatures.
#[derive(Debug)]
enum Keys {
    /// A secret shared with the issuer.
    Secret(DecodingKey),
    /// The keys that the issuer publishes.
    Published(Jwks),
}

impl Tokens {
    pub(super) fn new(auth: &Auth, clock: Arc<dyn Clock>, tasks: Tasks) -> Result<Self, String> {
        signatures::check_with_ring();
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

    /// Starts to fetch the issuer's keys, so that the first caller need not wait for them.
    pub(super) fn prepare(&self) {
        if let Keys::Published(jwks) = &self.keys {
            jwks.freshen();
        }
    }

    /// Returns the caller of a request with these headers.
    pub(super) async fn known(&self, headers: &HeaderMap) -> Result<Known, AuthFailure> {
        self.check(bearer(headers)?).await
    }

    /// Returns the caller that a token names.
    pub(super) async fn check(&self, token: &str) -> Result<Known, AuthFailure> {
        let claims = self.checked(token, &self.audience).await?;
        Ok(known(self.claims.principal(&claims)?, &claims))
    }

    /// Returns the person that an ID token names. The issuer gave it to this client itself (OpenID Connect Core,
    /// 3.1.3.7).
    pub(super) async fn check_id_token(&self, token: &str, client_id: &str) -> Result<Known, AuthFailure> {
        let claims = self.checked(token, client_id).await?;
        if claims.get("azp").is_some_and(|party| party != client_id) {
            return Err(Unknown::Audience.into());
        }
        Ok(known(self.claims.person(&claims)?, &claims))
    }

    /// Returns the person that the answer of the issuer about an access token names (RFC 7662, 2.2). The issuer gave that
    /// token to this client itself.
    pub(super) fn check_introspected(
        &self,
        claims: &Map<String, Value>,
        client_id: &str,
    ) -> Result<Known, Unknown> {
        if claims.get("active") != Some(&Value::Bool(true)) {
            return Err(Unknown::Inactive);
        }
        let is_other = |claim: &str, expected: &str| claims.get(claim).is_some_and(|is| is != expected);
        if is_other("iss", &self.issuer) {
            return Err(Unknown::Issuer);
        }
        let is_for_this_server = match claims.get("aud") {
            None => true,
            Some(Value::Array(all)) => all.iter().any(|audience| *audience == self.audience),
            Some(audience) => *audience == self.audience,
        };
        if !is_for_this_server || is_other("client_id", client_id) {
            return Err(Unknown::Audience);
        }
        if claims.get("exp").and_then(Value::as_f64).is_none() {
            return Err(Unknown::NoClaim("exp".to_owned()));
        }
        Ok(known(self.claims.person(claims)?, claims))
    }

    /// Returns the claims of a token for this audience.
    async fn checked(&self, token: &str, audience: &str) -> Result<Map<String, Value>, AuthFailure> {
        let header = jsonwebtoken::decode_header(token).map_err(Unknown::from)?;
        check_header(&header)?;
        let (key, algorithm) = self.key(&header).await?;
        let checked = jsonwebtoken::decode(token, &key, &self.validation(algorithm, audience));
        let claims: Map<String, Value> = checked.map_err(Unknown::from)?.claims;
        self.check_more(&claims)?;
        Ok(claims)
    }

    /// Returns the key and the algorithm that check a token with this header.
    async fn key(&self, header: &Header) -> Result<(DecodingKey, Algorithm), AuthFailure> {
        match &self.keys {
            Keys::Secret(key) => Ok((key.clone(), Algorithm::HS256)),
            Keys::Published(jwks) => jwks.find(header).await,
        }
    }

    fn validation(&self, algorithm: Algorithm, audience: &str) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[audience]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECONDS;
        validation
    }

    /// Checks the claims that the library does not check.
    fn check_more(&self, claims: &Map<String, Value>) -> Result<(), Unknown> {
        // The library also accepts a list of issuers that contains the issuer's name.
        if claims.get("iss").and_then(Value::as_str) != Some(&self.issuer) {
            return Err(Unknown::Issuer);
        }
        let now = self.clock.now().as_micros() / 1_000_000;
        let latest = (now as f64) + (LEEWAY_SECONDS as f64);
        match claims.get("iat").map(Value::as_f64) {
            None => {}
            Some(Some(issued)) if issued <= latest => {}
            Some(_) => return Err(Unknown::IssuedAt),
        }
        Ok(())
    }
}

fn known(principal: Principal, claims: &Map<String, Value>) -> Known {
    Known { principal, expiry: Expiry(Some(accepted_until(claims))), ticket: None, session: None }
}

/// Returns when the server stops accepting a token with these checked claims.
fn accepted_until(claims: &Map<String, Value>) -> Timestamp {
    let seconds = claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
    let micros = (seconds + LEEWAY_SECONDS as f64) * 1e6;
    Timestamp::from_micros(micros as i64)
}

/// Returns the one token of a request.
fn bearer(headers: &HeaderMap) -> Result<&str, Unknown> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let only = all.next().ok_or(Unknown::NoToken)?;
    if all.next().is_some() {
        return Err(Unknown::SeveralHeaders);
    }
    let credentials = only.to_str().map_err(|_| Unknown::OtherScheme)?;
    let (scheme, token) = credentials.split_once(' ').unwrap_or((credentials, ""));
    match scheme.eq_ignore_ascii_case("Bearer") {
        true => Ok(token.trim_start_matches(' ')),
        false => Err(Unknown::OtherScheme),
    }
}

fn check_header(header: &Header) -> Result<(), Unknown> {
    // A receiver must refuse a token with critical header parameters that it does not understand (RFC 7515,
    // 4.1.11). This server understands no critical parameters.
    if header.crit.is_some() {
        return Err(Unknown::Critical);
    }
    match &header.typ {
        Some(typ) if !TYPES.iter().any(|known| typ.eq_ignore_ascii_case(known)) => Err(Unknown::Type),
        _ => Ok(()),
    }
}
