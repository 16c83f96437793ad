//! The claims of a token that say for whom and how long it counts (RFC 7519, 4.1).

use crate::http::auth::failure::Unknown;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// Accepted difference between clocks, in seconds.
pub(super) const LEEWAY_SECONDS: u64 = 60;

/// Whom a token has to be from and for.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    /// The claim that names the audience.
    pub(super) audience_claim: &'a str,
    pub(super) audience: &'a str,
}

/// The registered claims. Their parser refuses each of them if it is there twice.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Registered {
    #[serde(rename = "exp")]
    _exp: IgnoredAny,
    #[serde(rename = "nbf")]
    _nbf: IgnoredAny,
    #[serde(rename = "iat")]
    _iat: IgnoredAny,
    #[serde(rename = "iss")]
    _iss: IgnoredAny,
    #[serde(rename = "aud")]
    _aud: IgnoredAny,
    #[serde(rename = "sub")]
    _sub: IgnoredAny,
}

/// Parses the claims of a token.
pub(super) fn claims(json: &[u8]) -> Result<Map<String, Value>, Unknown> {
    let _once: Registered = serde_json::from_slice(json).map_err(|_| Unknown::Unreadable)?;
    serde_json::from_slice(json).map_err(|_| Unknown::Unreadable)
}

/// Checks whether a token with these claims counts at this time, in seconds since 1970.
pub(super) fn check(claims: &Map<String, Value>, expected: &Expected<'_>, now: f64) -> Result<(), Unknown> {
    let missing = |claim: &str| Unknown::NoClaim(claim.to_owned());
    let found = |claim: &str| claims.get(claim).filter(|value| !value.is_null());
    let expires = found("exp").and_then(seconds).ok_or_else(|| missing("exp"))?;
    let issuer = found("iss").ok_or_else(|| missing("iss"))?;
    let audience = found(expected.audience_claim).filter(|claim| is_text_or_texts(claim));
    let audience = audience.ok_or_else(|| missing(expected.audience_claim))?;
    found("sub").and_then(Value::as_str).ok_or_else(|| missing("sub"))?;
    let leeway = LEEWAY_SECONDS as f64;
    if expires < now - leeway {
        return Err(Unknown::Expired);
    }
    match found("nbf").map(seconds) {
        Some(None) => return Err(Unknown::ClaimForm("nbf".to_owned())),
        Some(Some(begins)) if begins > now + leeway => return Err(Unknown::NotYetValid),
        Some(Some(_)) | None => {}
    }
    if issuer != expected.issuer {
        return Err(Unknown::Issuer);
    }
    if !names(audience, expected.audience) {
        return Err(Unknown::Audience(expected.audience_claim.to_owned()));
    }
    match found("iat").map(Value::as_f64) {
        Some(Some(issued)) if issued <= now + leeway => Ok(()),
        None => Ok(()),
        Some(_) => Err(Unknown::IssuedAt),
    }
}

/// Whether a claim is this audience, or a list that contains it.
pub(super) fn names(claim: &Value, audience: &str) -> bool {
    match claim {
        Value::Array(all) => all.iter().any(|one| one == audience),
        one => one == audience,
    }
}

fn is_text_or_texts(claim: &Value) -> bool {
    claim.is_string() || claim.as_array().is_some_and(|all| all.iter().all(Value::is_string))
}

/// Returns a time in seconds since 1970, which may have a fraction.
fn seconds(value: &Value) -> Option<f64> {
    value.as_f64().filter(|time| (0.0..u64::MAX as f64).contains(time))
}
