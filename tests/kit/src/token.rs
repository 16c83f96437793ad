//! Tokens of an issuer that shares a secret with the server, and a configuration that trusts it.

use holdpoint::config::{AuthMode, Config};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Map, Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// The secret of HS256.
pub const SECRET: &str = "a secret that only these tests know";
pub const ISSUER: &str = "https://issuer.example";
pub const AUDIENCE: &str = "holdpoint";

/// Configures the server to authenticate callers by tokens signed with [`SECRET`].
pub fn with_tokens(config: &mut Config) {
    config.auth.mode = AuthMode::Jwt;
    config.auth.secret = Some(SECRET.into());
    config.auth.issuer = Some(ISSUER.to_owned());
    config.auth.audience = Some(AUDIENCE.to_owned());
}

/// The same for a server process.
pub const VARIABLES: [(&str, &str); 4] = [
    ("HOLDPOINT_AUTH__MODE", "jwt"),
    ("HOLDPOINT_AUTH__SECRET", SECRET),
    ("HOLDPOINT_AUTH__ISSUER", ISSUER),
    ("HOLDPOINT_AUTH__AUDIENCE", AUDIENCE),
];

/// A token for this user, valid for an hour.
pub fn token(tenant: &str, user: &str, roles: &[&str]) -> String {
    signed(&claims(tenant, user, roles))
}

/// A token with exactly these claims.
pub fn signed(claims: &Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &key).unwrap()
}

pub fn claims(tenant: &str, user: &str, roles: &[&str]) -> Value {
    json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": user, "tenant": tenant, "roles": roles,
            "iat": now(), "exp": now() + 3600 })
}

/// Claims with these changes; `null` removes a claim.
pub fn changed(mut claims: Value, changes: &Value) -> Value {
    let fields: &mut Map<String, Value> = claims.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(fields.remove(name)),
            value => drop(fields.insert(name.clone(), value.clone())),
        }
    }
    claims
}

/// Seconds since 1970.
#[expect(clippy::disallowed_methods, reason = "an issuer has a clock of its own")]
pub fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}
