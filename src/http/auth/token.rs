//! Bearer tokens (RFC 6750) that are JWTs (RFC 7519).
//!
//! A token does not control how the server checks it. Its `alg` must be an accepted algorithm that matches
//! the key. The server ignores keys, and addresses of keys, in the header of a token.

use super::claims::Claims;
use super::jwks::Jwks;
use super::signatures;
use super::validity::{self, Expected, LEEWAY_SECONDS};
use super::{Expiry, KnownCaller};
use crate::agent::Tasks;
use crate::config::Auth;
use crate::http::auth::failure::{AuthFailure, Unknown};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdpoint_core::Principal;
use holdpoint_core::clock::{Clock, Timestamp};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use poem::http::HeaderMap;
use poem::http::header::AUTHORIZATION;
use secrecy::ExposeSecret;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The claim that names the audience of ID tokens (OpenID Connect Core, 2).
const AUDIENCE_OF_ID_TOKENS: &str = "aud";
/// The accepted values of `typ`, if a token has one (RFC 9068, 2.1).
const TYPES: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];

/// Authenticates callers by their tokens.
#[derive(Debug)]
pub(crate) struct Tokens {
    keys: Keys,
    issuer: String,
    audience: String,
    /// The claim that names the audience of access tokens.
    audience_claim: String,
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
        let keys = match (&auth.secret, &auth.jwks_url) {
            (Some(secret), None) => Keys::Secret(DecodingKey::from_secret(secret.expose_secret().as_bytes())),
            (None, Some(url)) => Keys::Published(Jwks::new(url.clone(), clock.clone(), tasks)?),
            _ => return Err("expected either a secret or a jwks_url".to_owned()),
        };
        Ok(Self {
            keys,
            issuer: auth.issuer.clone().unwrap_or_default(),
            audience: auth.audience.clone().unwrap_or_default(),
            audience_claim: auth.audience_claim.clone(),
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
    pub(super) async fn known(&self, headers: &HeaderMap) -> Result<KnownCaller, AuthFailure> {
        self.check(bearer(headers)?).await
    }

    /// Returns the caller that a token names.
    pub(super) async fn check(&self, token: &str) -> Result<KnownCaller, AuthFailure> {
        let claims = self.checked(token, &self.audience_claim, &self.audience).await?;
        Ok(known(self.claims.principal(&claims)?, &claims))
    }

    /// Returns the person that an ID token names. The issuer gave it to this client itself (OpenID Connect Core,
    /// 3.1.3.7).
    pub(super) async fn check_id_token(
        &self,
        token: &str,
        client_id: &str,
    ) -> Result<KnownCaller, AuthFailure> {
        let claims = self.checked(token, AUDIENCE_OF_ID_TOKENS, client_id).await?;
        if claims.get("azp").is_some_and(|party| party != client_id) {
            return Err(Unknown::Audience("azp".to_owned()).into());
        }
        Ok(known(self.claims.person(&claims)?, &claims))
    }

    /// Returns the person that the answer of the issuer about an access token names (RFC 7662, 2.2). The issuer gave that
    /// token to this client itself.
    pub(super) fn check_introspected(
        &self,
        claims: &Map<String, Value>,
        client_id: &str,
    ) -> Result<KnownCaller, Unknown> {
        if claims.get("active") != Some(&Value::Bool(true)) {
            return Err(Unknown::Inactive);
        }
        let is_other = |claim: &str, expected: &str| claims.get(claim).is_some_and(|is| is != expected);
        if is_other("iss", &self.issuer) {
            return Err(Unknown::Issuer);
        }
        let audience = claims.get(&self.audience_claim);
        if audience.is_some_and(|audience| !validity::names(audience, &self.audience)) {
            return Err(Unknown::Audience(self.audience_claim.clone()));
        }
        if is_other("client_id", client_id) {
            return Err(Unknown::Audience("client_id".to_owned()));
        }
        if claims.get("exp").and_then(Value::as_f64).is_none() {
            return Err(Unknown::NoClaim("exp".to_owned()));
        }
        Ok(known(self.claims.person(claims)?, claims))
    }

    /// Returns the claims of a token for this audience, which this claim names.
    async fn checked(
        &self,
        token: &str,
        audience_claim: &str,
        audience: &str,
    ) -> Result<Map<String, Value>, AuthFailure> {
        let header = jsonwebtoken::decode_header(token).map_err(Unknown::from)?;
        check_header(&header)?;
        let (key, algorithm) = self.key(&header).await?;
        if header.alg != algorithm {
            return Err(Unknown::Algorithm.into());
        }
        let (message, signature) = token.rsplit_once('.').ok_or(Unknown::Unreadable)?;
        let (_, payload) = message.rsplit_once('.').ok_or(Unknown::Unreadable)?;
        signatures::verify(algorithm, &key, message.as_bytes(), &decoded(signature)?)?;
        let claims = validity::claims(&decoded(payload)?)?;
        let expected = Expected { issuer: &self.issuer, audience_claim, audience };
        validity::check(&claims, &expected, self.clock.now().as_micros() as f64 / 1e6)?;
        Ok(claims)
    }

    /// Returns the key and the algorithm that check a token with this header.
    async fn key(&self, header: &Header) -> Result<(DecodingKey, Algorithm), AuthFailure> {
        match &self.keys {
            Keys::Secret(key) => Ok((key.clone(), Algorithm::HS256)),
            Keys::Published(jwks) => jwks.find(header).await,
        }
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, Unknown> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Unknown::Unreadable)
}

fn known(principal: Principal, claims: &Map<String, Value>) -> KnownCaller {
    KnownCaller { principal, expiry: Expiry(Some(accepted_until(claims))), ticket: None, session: None }
}

/// Returns when the server stops accepting a token with these checked claims.
fn accepted_until(claims: &Map<String, Value>) -> Timestamp {
    let seconds = claims.get("exp").and_then(Value::as_f64).unwrap_or_default();
    let micros = (seconds + LEEWAY_SECONDS as f64) * 1e6;
    Timestamp::from_micros(micros as i64)
}

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
