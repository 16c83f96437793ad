//! `[database]`: where the rows are.

use super::{ConfigError, wrong};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

/// `[database]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// `url`: `sqlite://` and a file, which is made if it is not there, or `postgres://`.
    #[serde(serialize_with = "super::shown::secret_url")]
    pub url: SecretString,
    /// `direct_url`: `postgres://`, the same database past a pooler, to hear of other processes' events at once; if
    /// absent, `url`. Behind a pooler that shares sessions nothing is heard, and they are looked for every second.
    #[serde(serialize_with = "super::shown::secret_option_url")]
    pub direct_url: Option<SecretString>,
    /// `max_connections`: connections of this process. On Postgres a quarter, at most 4, is kept for decisions and
    /// for saying that work is alive.
    pub max_connections: u32,
}

impl Default for Database {
    fn default() -> Self {
        Self { url: SecretString::from("sqlite://holdpoint.db"), direct_url: None, max_connections: 10 }
    }
}

impl Database {
    /// The URL with its password masked, for an operator to read.
    pub(crate) fn masked_url(&self) -> String {
        super::shown::masked(self.url.expose_secret())
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let scheme = self.url.expose_secret().split_once(':').map(|(scheme, _)| scheme);
        if !matches!(scheme, Some("sqlite" | "postgres" | "postgresql")) {
            return wrong("database.url", "expected a URL that begins with sqlite: or postgres://");
        }
        let direct = self.direct_url.as_ref().map(|url| Url::parse(url.expose_secret()));
        if direct.is_some_and(|url| !url.is_ok_and(|url| matches!(url.scheme(), "postgres" | "postgresql"))) {
            return wrong("database.direct_url", "expected a postgres:// URL");
        }
        match self.max_connections {
            0 => wrong("database.max_connections", "expected at least 1"),
            _ => Ok(()),
        }
    }
}
