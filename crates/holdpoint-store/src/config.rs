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
    /// `sqlite://FILE`, created if absent, or `postgres://…` (Postgres 15 or later).
    ///
    /// Value: URL, or a file. Default: `sqlite://holdpoint.db`.
    #[serde(serialize_with = "holdpoint_settings::shown::secret_url")]
    pub url: SecretString,
    /// `postgres://…`: the same database without the pooler, for `LISTEN`. Without the key, the server listens at
    /// `url`.
    ///
    /// Value: URL, or a file. Default: none.
    #[serde(serialize_with = "holdpoint_settings::shown::secret_option_url")]
    pub direct_url: Option<SecretString>,
    /// On Postgres, the schema with the tables, created if absent: lower-case letters, digits and `_`, at most 63,
    /// beginning with no digit and not with `pg_`. Servers that share a schema share their rows. SQLite has no
    /// schemas, and ignores the key. See [Schema](operations.md#schema).
    ///
    /// Value: name. Default: `holdpoint`.
    pub schema: String,
    /// Connections of this process.
    ///
    /// Value: integer, at least 1. Default: `10`.
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
    /// Returns a database that exists as long as its one connection.
    pub fn in_memory() -> Self {
        Self { url: "sqlite::memory:".into(), max_connections: 1, ..Self::default() }
    }

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
