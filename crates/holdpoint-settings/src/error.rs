//! The error of an invalid configuration.

use std::fmt;
use std::path::PathBuf;

/// The error of an invalid configuration.
#[derive(thiserror::Error)]
pub enum ConfigError {
    /// A file that cannot be read, or that is not TOML.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason, without an excerpt of the file.
        why: String,
    },
    /// A key with a value that is not allowed, or a key that does not exist.
    #[error("{key}: {why}")]
    Value {
        /// The key.
        key: String,
        /// The expected value.
        why: String,
    },
}

/// Prints the text for the operator: an error that `main` returns is printed with `Debug`.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ConfigError {
    /// Creates the error of a value that is not allowed.
    pub fn value(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Value { key: key.into(), why: why.into() }
    }
}

/// Refuses a value that is not allowed.
///
/// # Errors
/// Always.
pub fn wrong(key: impl Into<String>, why: impl Into<String>) -> Result<(), ConfigError> {
    Err(ConfigError::value(key, why))
}
