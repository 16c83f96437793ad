//! `[database]`: where the server stores its rows.

use holdpoint_settings::{ConfigError, shown, wrong};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

/// The longest name in Postgres.
const SCHEMA_BYTES_MAX: usize = 63;

/// `[database]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// `url`: `sqlite://` and a file, which is created if it does not exist, or `postgres://`.
    #[serde(serialize_with = "holdpoint_settings::shown::secret_url")]
    pub url: SecretString,
    /// `direct_url`: `postgres://`, the address of the same database without the pooler, for `LISTEN`.
    /// Defaults to `url`. Through a pooler that shares sessions the process receives no notifications, and
    /// polls every second for the events of other processes.
    #[serde(serialize_with = "holdpoint_settings::shown::secret_option_url")]
    pub direct_url: Option<SecretString>,
    /// `schema`: on Postgres, the schema that holds the tables. The server creates it if it is missing. Without
    /// effect on SQLite.
    pub schema: String,
    /// `max_connections`: the connections of this process. On Postgres, a quarter of them, at most 4, is
    /// reserved for decisions and for lease renewals.
    pub max_connections: u32,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            url: SecretString::from("sqlite://holdpoint.db"),
            direct_url: None,
            schema: "holdpoint".to_owned(),
            max_connections: 10,
        }
    }
}

impl Database {
    /// Returns the URL with its password masked, for an operator to read.
    pub fn masked_url(&self) -> String {
        shown::masked(self.url.expose_secret())
    }

    /// Checks the values.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        let scheme = self.url.expose_secret().split_once(':').map(|(scheme, _)| scheme);
        if !matches!(scheme, Some("sqlite" | "postgres" | "postgresql")) {
            return wrong("database.url", "expected a URL that begins with sqlite: or postgres://");
        }
        let direct = self.direct_url.as_ref().map(|url| Url::parse(url.expose_secret()));
        if direct.is_some_and(|url| !url.is_ok_and(|url| matches!(url.scheme(), "postgres" | "postgresql"))) {
            return wrong("database.direct_url", "expected a postgres:// URL");
        }
        if !is_schema(&self.schema) {
            return wrong(
                "database.schema",
                "expected lower-case letters, digits and underscores, at most 63, that begin with no digit and not \
                 with pg_",
            );
        }
        match self.max_connections {
            0 => wrong("database.max_connections", "expected at least 1"),
            _ => Ok(()),
        }
    }
}

/// Whether this text is a plain name, and none of the schemas of Postgres itself.
fn is_schema(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=SCHEMA_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_word)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.starts_with("pg_")
        && name != "information_schema"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_has_a_plain_name_that_postgres_keeps_whole() {
        for name in ["holdpoint", "public", "_", "tenant_7", &"s".repeat(63)] {
            assert!(is_schema(name), "{name}");
        }
        let wrong =
            ["", "7a", "Holdpoint", "a-b", "a\"", "ä", "pg_temp", "information_schema", &"s".repeat(64)];
        for name in wrong {
            assert!(!is_schema(name), "{name}");
        }
    }
}
