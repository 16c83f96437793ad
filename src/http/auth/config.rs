//! `[auth]`: how callers authenticate.

use crate::config::Server;
use holdpoint_settings::{ConfigError, is_safe, shown, wrong};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The shortest secret for HS256, in bytes: the length of the hash (RFC 7518, 3.2).
const SECRET_BYTES_MIN: usize = 32;
/// The shortest and the longest time that a session is kept.
const SESSION_MIN: Duration = Duration::from_secs(60);
const SESSION_MAX: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// The longest name of a tenant in characters, as in a token.
const TENANT_CHARS_MAX: usize = 256;
/// The parameters of an authorization request that the server sets itself (RFC 6749, 4.1.1; RFC 7636, 4.3).
const OWN_PARAMETERS: [&str; 7] = [
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "redirect_uri",
    "response_mode",
    "response_type",
    "state",
];

/// `[auth]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// `mode`: how callers authenticate.
    pub mode: AuthMode,
    /// `allow_insecure`: whether mode `none` may serve other machines.
    pub allow_insecure: bool,
    /// `secret`: the key of HS256, at least 32 bytes. Excludes `jwks_url`.
    #[serde(serialize_with = "shown::secret")]
    pub secret: Option<SecretString>,
    /// `jwks_url`: the address of the issuer's keys (RFC 7517), for RS, PS and ES with 256 and 384 bits, RS512, PS512
    /// and EdDSA. `https`, or `http` on this machine.
    #[serde(serialize_with = "shown::url")]
    pub jwks_url: Option<String>,
    /// `issuer`: the required value of `iss`.
    pub issuer: Option<String>,
    /// `audience`: the required value or element of `audience_claim`.
    pub audience: Option<String>,
    /// `audience_claim`: the claim that names the audience of access tokens, such as `client_id` for an issuer whose
    /// access tokens have no `aud`.
    pub audience_claim: String,
    /// `user_claim`: the claim that names the user.
    pub user_claim: String,
    /// `tenant_claim`: the claim that names the tenant.
    pub tenant_claim: String,
    /// `default_tenant`: the tenant of a token that names none. Without this key the server refuses such a
    /// token.
    pub default_tenant: Option<String>,
    /// `roles_claim`: the claim with the roles, as a list, as words separated by spaces, or as the keys of an object of
    /// objects. A value that begins with `/` is a JSON pointer (RFC 6901), as in `/realm_access/roles`.
    pub roles_claim: String,
    /// `roles_key`: the field with the name of a role, for an issuer whose roles are objects.
    pub roles_key: Option<String>,
    /// `operator_roles`: the roles of operators. An operator may loosen the policy of a session.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub operator_roles: Vec<String>,
    /// `accept_roles`: the roles that accept definitions of MCP tools, for all tenants. Default: `operator_roles`.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub accept_roles: Vec<String>,
    /// `worker_roles`: the roles of workers. A worker claims and settles calls of `[[worker_tools]]`.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub worker_roles: Vec<String>,
    /// `client_id`: the name of the server at the issuer, as a public client. With it people sign in to the
    /// console. Needs `jwks_url` and `server.public_url`.
    pub client_id: Option<String>,
    /// `sign_in_params`: further parameters of the authorization request, such as `scope`, `resource` or
    /// `audience`.
    pub sign_in_params: BTreeMap<String, String>,
    /// `session_key`: the key with which the server encrypts the tokens of sign-ins in the database, at least 32 bytes,
    /// the same for all servers. With it a session at the console outlives the access token. Needs `client_id`.
    #[serde(serialize_with = "shown::secret")]
    pub session_key: Option<SecretString>,
    /// `session_from`: what names the person of a session that the server keeps.
    pub session_from: SessionFrom,
    /// `session_max`: how long a session lasts that the server keeps with `session_key`. After it the person signs in
    /// again.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub session_max: Duration,
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
            audience_claim: "aud".to_owned(),
            user_claim: "sub".to_owned(),
            tenant_claim: "tenant".to_owned(),
            default_tenant: None,
            roles_claim: "roles".to_owned(),
            roles_key: None,
            operator_roles: Vec::new(),
            accept_roles: Vec::new(),
            worker_roles: Vec::new(),
            client_id: None,
            sign_in_params: BTreeMap::new(),
            session_key: None,
            session_from: SessionFrom::default(),
            session_max: Duration::from_secs(24 * 60 * 60),
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

/// What names the person of a session, and their roles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionFrom {
    /// The access token, which is a JWT for `auth.audience`, as that of every other caller.
    #[default]
    AccessToken,
    /// The ID token, for an issuer whose access tokens are opaque.
    IdToken,
    /// The answer of the issuer about the access token (RFC 7662).
    Introspection,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl Auth {
    pub(crate) fn check(&self, server: &Server) -> Result<(), ConfigError> {
        if !(SESSION_MIN..=SESSION_MAX).contains(&self.session_max) {
            return wrong("auth.session_max", "expected 60s to 90d");
        }
        if self.mode == AuthMode::None {
            return self.check_unused();
        }
        self.check_sign_in(server)?;
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
            ("auth.audience_claim", &self.audience_claim),
            ("auth.user_claim", &self.user_claim),
            ("auth.tenant_claim", &self.tenant_claim),
            ("auth.roles_claim", &self.roles_claim),
        ] {
            if claim.is_empty() {
                return wrong(key, "expected the name of a claim");
            }
        }
        if self.roles_key.as_deref() == Some("") {
            return wrong("auth.roles_key", "expected the name of a field");
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
    fn check_sign_in(&self, server: &Server) -> Result<(), ConfigError> {
        if let Some(name) = self.sign_in_params.keys().find(|name| OWN_PARAMETERS.contains(&name.as_str())) {
            let why = "expected another parameter: the server sets this one";
            return wrong(format!("auth.sign_in_params.{name}"), why);
        }
        self.check_sessions()?;
        match &self.client_id {
            None if self.sign_in_params.is_empty() => Ok(()),
            None => wrong("auth.sign_in_params", "expected auth.client_id beside it"),
            Some(id) if id.is_empty() => wrong("auth.client_id", "expected a name"),
            Some(_) if self.secret.is_some() => wrong(
                "auth.client_id",
                "expected auth.jwks_url: with auth.secret there is no issuer to sign in at",
            ),
            Some(_) if !self.issuer.as_deref().is_some_and(is_safe) => wrong(
                "auth.issuer",
                "expected an https:// URL, or http:// on this machine, for auth.client_id",
            ),
            Some(_) if !server.public_url.as_deref().is_some_and(is_safe) => wrong(
                "server.public_url",
                "expected an https:// URL, or http:// on this machine, where browsers come back to after the \
                 sign-in (auth.client_id)",
            ),
            Some(_) => Ok(()),
        }
    }

    fn check_sessions(&self) -> Result<(), ConfigError> {
        match &self.session_key {
            Some(_) if self.client_id.is_none() => {
                wrong("auth.session_key", "expected auth.client_id beside it")
            }
            Some(key) if key.expose_secret().len() < SECRET_BYTES_MIN => {
                wrong("auth.session_key", format!("expected at least {SECRET_BYTES_MIN} bytes"))
            }
            None if self.session_from != SessionFrom::AccessToken => {
                wrong("auth.session_from", "expected auth.session_key beside it")
            }
            _ => Ok(()),
        }
    }

    /// Returns the roles that accept definitions of MCP tools. `None` in mode `none`, where the one user does.
    pub(crate) fn accepting(&self) -> Option<Vec<String>> {
        let roles = if self.accept_roles.is_empty() { &self.operator_roles } else { &self.accept_roles };
        (self.mode != AuthMode::None).then(|| roles.clone())
    }

    /// Refuses keys of token checks in mode `none`. An operator that sets such a key expects the checks.
    fn check_unused(&self) -> Result<(), ConfigError> {
        let set = [
            ("auth.secret", self.secret.is_some()),
            ("auth.jwks_url", self.jwks_url.is_some()),
            ("auth.issuer", self.issuer.is_some()),
            ("auth.audience", self.audience.is_some()),
            ("auth.client_id", self.client_id.is_some()),
            ("auth.sign_in_params", !self.sign_in_params.is_empty()),
            ("auth.session_key", self.session_key.is_some()),
        ];
        match set.iter().find(|(_, is_set)| *is_set) {
            Some((key, _)) => wrong("auth.mode", format!("expected \"jwt\", since {key} is set")),
            None => Ok(()),
        }
    }
}
