//! `[mcp.oauth]`: access tokens for an MCP server that is reached over HTTP.

use crate::config::{ConfigError, Egress};
use holdpoint_settings::{is_safe, shown, text_of_file, wrong};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

const ONE_SECRET: &str = "expected either this or client_secret_file, and not both";

/// `[mcp.oauth]`
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct McpOauth {
    /// Name of holdpoint at the issuer.
    ///
    /// Value: text. Default: required.
    pub client_id: String,
    /// Secret of holdpoint at the issuer. `holdpoint config` masks it.
    ///
    /// Value: text. Default: required, or `client_secret_file`.
    #[serde(default, serialize_with = "shown::secret", skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<SecretString>,
    /// File that contains `client_secret`. It is read for each token.
    ///
    /// Value: path. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret_file: Option<PathBuf>,
    /// Scopes of a token, with spaces between.
    ///
    /// Value: text. Default: those that the server names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Server for which a token is (RFC 8707).
    ///
    /// Value: URI. Default: as the server names itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Issuer that gets the secret.
    ///
    /// Value: URL. Default: the one that the server names first.
    #[serde(default, serialize_with = "shown::url", skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Address that gives tokens, for an issuer without metadata. Excludes `issuer`.
    ///
    /// Value: URL. Default: that of the issuer's metadata.
    #[serde(default, serialize_with = "shown::url", skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
}

impl fmt::Debug for McpOauth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown::debug(self, f)
    }
}

impl McpOauth {
    /// Returns the secret as it is now. `key` is the key of the section.
    pub(crate) fn secret(&self, key: &str) -> Result<SecretString, ConfigError> {
        let wrong =
            |why: &str| Err(ConfigError::Value { key: format!("{key}.client_secret"), why: why.to_owned() });
        let secret = match (&self.client_secret, &self.client_secret_file) {
            (Some(secret), None) => secret.clone(),
            (None, Some(path)) => text_of_file(&format!("{key}.client_secret_file"), path)?.into(),
            _ => return wrong(ONE_SECRET),
        };
        match secret.expose_secret().is_empty() {
            true => wrong("expected a secret, and it is empty"),
            false => Ok(secret),
        }
    }

    /// Checks the keys of a section. `key` is the key of the section.
    pub(crate) fn check(&self, key: &str, egress: &Egress) -> Result<(), ConfigError> {
        let key = |field: &str| format!("{key}.{field}");
        if self.client_id.is_empty() {
            return wrong(key("client_id"), "expected the name of holdpoint at the issuer");
        }
        if self.client_secret.is_some() == self.client_secret_file.is_some() {
            return wrong(key("client_secret"), ONE_SECRET);
        }
        if self.issuer.is_some() && self.token_url.is_some() {
            return wrong(key("token_url"), "expected either this or issuer, which names its own address");
        }
        for (field, url) in [("issuer", &self.issuer), ("token_url", &self.token_url)] {
            let Some(url) = url else { continue };
            if !is_safe(url) {
                return wrong(key(field), "expected an https:// URL, or http:// on this machine");
            }
            egress.check_url(&key(field), url)?;
        }
        match self.resource.as_deref().map(Url::parse) {
            Some(Ok(url)) if url.fragment().is_some() => {
                wrong(key("resource"), "expected a URL without a fragment")
            }
            Some(Err(_)) => wrong(key("resource"), "expected a URL"),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}
