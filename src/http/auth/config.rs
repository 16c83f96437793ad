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
    /// `none`: every caller is the user `local` of the tenant `default`. `jwt`: every request carries a bearer token.
    ///
    /// Value: `none`, `jwt`. Default: `none`.
    pub mode: AuthMode,
    /// Whether mode `none` may serve other machines.
    ///
    /// Value: switch. Default: `false`.
    pub allow_insecure: bool,
    /// Key for HS256. Exactly one of `secret` and `jwks_url` in mode `jwt`.
    ///
    /// Value: text, at least 32 bytes, or a file. Default: none.
    #[serde(serialize_with = "shown::secret")]
    pub secret: Option<SecretString>,
    /// Address of the issuer's keys, for RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA. A key
    /// without `alg` checks all algorithms of its kind. `https://`, or `http://` on this machine.
    ///
    /// Value: URL. Default: none.
    #[serde(serialize_with = "shown::url")]
    pub jwks_url: Option<String>,
    /// Required value of `iss`. Required in mode `jwt`.
    ///
    /// Value: text. Default: none.
    pub issuer: Option<String>,
    /// Required value or element of `audience_claim`. Required in mode `jwt`.
    ///
    /// Value: text. Default: none.
    pub audience: Option<String>,
    /// Claim that names the audience of access tokens: `client_id` for AWS Cognito, whose access tokens have no
    /// `aud`. With another claim than `aud` the server does not read `aud`. ID tokens have `aud`.
    ///
    /// Value: text. Default: `aud`.
    pub audience_claim: String,
    /// Claim with the user's name.
    ///
    /// Value: text. Default: `sub`.
    pub user_claim: String,
    /// Claim with the tenant's name.
    ///
    /// Value: text. Default: `tenant`.
    pub tenant_claim: String,
    /// Tenant of tokens without `tenant_claim`. Without the key, such tokens get 401.
    ///
    /// Value: text, 1 to 256 characters. Default: none.
    pub default_tenant: Option<String>,
    /// Claim with the roles: a list, words separated by spaces, or an object of objects, whose keys are the roles
    /// (Zitadel: `urn:zitadel:iam:org:project:roles`). A value that begins with `/` is a JSON pointer, as in
    /// `/realm_access/roles`. An item of the list that is no role is left out.
    ///
    /// Value: text. Default: `roles`.
    pub roles_claim: String,
    /// Field with the name of a role, where `roles_claim` is a list of objects, as in `[{"name": "clerk"}]`. Without
    /// it a token with such roles is refused.
    ///
    /// Value: text. Default: none.
    pub roles_key: Option<String>,
    /// Roles of operators: they see all calls of their tenant, may loosen a session's policy, resolve interrupted
    /// calls, and see and enable the webhooks and recipients of their tenant.
    ///
    /// Value: list of roles. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub operator_roles: Vec<String>,
    /// Roles that accept [definitions](tools.md#pinned-definitions) of MCP tools, which holds for all tenants. Set it
    /// if operators of one tenant must not decide for another.
    ///
    /// Value: list of roles. Default: those of `operator_roles`.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub accept_roles: Vec<String>,
    /// Roles of workers: they claim and settle calls of `worker_tools` in their tenant, and have no other right.
    /// Required in mode `jwt` with `worker_tools`.
    ///
    /// Value: list of roles. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub worker_roles: Vec<String>,
    /// Name of the server at the issuer, as a public client, for the [sign-in](approvers.md#sign-in) to the console.
    /// Needs mode `jwt` with `jwks_url`, an `issuer` that is an address, and `server.public_url` with `https://`, or
    /// `http://` on this machine.
    ///
    /// Value: text. Default: none.
    pub client_id: Option<String>,
    /// Further parameters of the authorization request, such as `scope` (default `openid`), `resource` or `audience`.
    /// `resource` is also in the requests for tokens.
    ///
    /// Value: table of texts. Default: none.
    pub sign_in_params: BTreeMap<String, String>,
    /// With it a session at the console [outlives the access token](approvers.md#sessions-that-the-server-keeps): the
    /// server keeps the tokens of sign-ins in the database, encrypted with this key. The same for all servers of a
    /// database. Needs `client_id`.
    ///
    /// Value: text, at least 32 bytes, or a file. Default: none.
    #[serde(serialize_with = "shown::secret")]
    pub session_key: Option<SecretString>,
    /// What names the person of a session that the server keeps, and their roles: the access token, which is a JWT
    /// for `audience`; the ID token; or the answer of the issuer about the access token (RFC 7662). The last two are
    /// for issuers with opaque access tokens, and need `session_key`.
    ///
    /// Value: `access-token`, `id-token`, `introspection`. Default: `access-token`.
    pub session_from: SessionFrom,
    /// How long a session lasts that the server keeps. After it the person signs in again.
    ///
    /// Value: duration, `60s` to `90d`. Default: `24h`.
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
