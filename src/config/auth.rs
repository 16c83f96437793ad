//! `[auth]`: how callers authenticate.

use super::{ConfigError, shown, wrong};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// The shortest secret for HS256, in bytes: the length of the hash (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
/// The longest name of a tenant in characters, as in a token.
const TENANT_CHARS_MAX: usize = 256;

/// `[auth]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// `mode`: how callers authenticate.
    #[serde(deserialize_with = "super::sources::word")]
    pub mode: AuthMode,
    /// `allow_insecure`: whether mode `none` may serve other machines.
    pub allow_insecure: bool,
    /// `secret`: the key of HS256, at least 32 bytes. Excludes `jwks_url`.
    #[serde(serialize_with = "shown::secret")]
    pub secret: Option<SecretString>,
    /// `jwks_url`: the address of the issuer's keys (RFC 7517), for RS256, ES256 and EdDSA. `https`, or
    /// `http` on this machine.
    #[serde(serialize_with = "shown::url")]
    pub jwks_url: Option<String>,
    /// `issuer`: the required value of `iss`.
    pub issuer: Option<String>,
    /// `audience`: the required value or element of `aud`.
    pub audience: Option<String>,
    /// `user_claim`: the claim that names the user.
    pub user_claim: String,
    /// `tenant_claim`: the claim that names the tenant.
    pub tenant_claim: String,
    /// `default_tenant`: the tenant of a token that names none. Without this key the server refuses such a
    /// token.
    pub default_tenant: Option<String>,
    /// `roles_claim`: the claim with the roles, as a list or as words separated by spaces. A value that
    /// begins with `/` is a JSON pointer (RFC 6901), as in `/realm_access/roles`.
    pub roles_claim: String,
    /// `operator_roles`: the roles of operators. An operator may loosen the policy of a session.
    #[serde(deserialize_with = "super::sources::list")]
    pub operator_roles: Vec<String>,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            mode: AuthMode::None,
            allow_insecure: false,
            secret: None,
            jwks_url: None,
            issuer: None,
            audience: None,
            user_claim: "sub".to_owned(),
            tenant_claim: "tenant".to_owned(),
            default_tenant: None,
            roles_claim: "roles".to_owned(),
            operator_roles: Vec::new(),
        }
    }
}

/// How callers authenticate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMode {
    /// Every caller is the one user `local`. Only this machine may call.
    #[default]
    None,
    /// Callers send a bearer token (RFC 6750), which is a JWT (RFC 7519).
    Jwt,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl Auth {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.mode == AuthMode::None {
            return self.check_unused();
        }
        match (&self.secret, &self.jwks_url) {
            (Some(secret), None) if secret.expose_secret().len() < SECRET_BYTES_MIN => {
                wrong("auth.secret", format!("expected at least {SECRET_BYTES_MIN} bytes"))?;
            }
            (Some(_), None) => {}
            (None, Some(url)) if !is_safe(url) => {
                wrong("auth.jwks_url", "expected an https:// URL, or http:// on this machine")?;
            }
            (None, Some(_)) => {}
            (Some(_), Some(_)) => wrong("auth.secret", "expected either this or auth.jwks_url, not both")?,
            (None, None) => wrong("auth.jwks_url", "expected this or auth.secret, which mode \"jwt\" needs")?,
        }
        for (key, value) in [("auth.issuer", &self.issuer), ("auth.audience", &self.audience)] {
            if value.as_deref().unwrap_or_default().is_empty() {
                return wrong(key, "expected a value, which mode \"jwt\" needs");
            }
        }
        for (key, claim) in [
            ("auth.user_claim", &self.user_claim),
            ("auth.tenant_claim", &self.tenant_claim),
            ("auth.roles_claim", &self.roles_claim),
        ] {
            if claim.is_empty() {
                return wrong(key, "expected the name of a claim");
            }
        }
        let named = |tenant: &str| (1..=TENANT_CHARS_MAX).contains(&tenant.chars().count());
        match self.default_tenant.as_deref() {
            Some(tenant) if !named(tenant) || tenant.contains(char::is_control) => {
                wrong("auth.default_tenant", "expected 1 to 256 characters, none of them a control character")
            }
            _ => Ok(()),
        }
    }
}

impl Auth {
    /// Refuses keys of token checks in mode `none`. An operator that sets such a key expects the checks.
    fn check_unused(&self) -> Result<(), ConfigError> {
        let set = [
            ("auth.secret", self.secret.is_some()),
            ("auth.jwks_url", self.jwks_url.is_some()),
            ("auth.issuer", self.issuer.is_some()),
            ("auth.audience", self.audience.is_some()),
        ];
        match set.iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => wrong("auth.mode", format!("expected \"jwt\", since {key} is set")),
            None => Ok(()),
        }
    }
}

/// Returns whether traffic to the URL stays on this machine or uses TLS.
pub(super) fn is_safe(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" => true,
        "http" => {
            let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        _ => false,
    }
}
