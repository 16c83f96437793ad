//! `[database]`: where the rows are.

use super::{ConfigError, wrong};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

/// `[database]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// `url`: `sqlite://` and a file, which is made if it is not there, or `postgres://`.
    #[serde(serialize_with = "super::shown::secret_url")]
    pub url: SecretString,
    /// `max_connections`: connections of this process. On Postgres a quarter, at most 4, is kept for decisions and
    /// for saying that work is alive.
    pub max_connections: u32,
}

impl Default for Database {
    fn default() -> Self {
        Self { url: SecretString::from("sqlite://holdpoint.db"), max_connections: 10 }
    }
}

impl Database {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self.max_connections {
            0 => wrong("database.max_connections", "expected at least 1"),
            _ => Ok(()),
        }
    }
}
