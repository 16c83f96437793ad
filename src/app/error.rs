//! The error of a server that does not start.

use crate::config::ConfigError;
use crate::tools::RegistryError;
use holdpoint_models::remote::RemoteError;
use holdpoint_store::StoreError;
use std::fmt;

/// The error of a server that cannot be built or served. The texts are for the operator.
#[derive(thiserror::Error)]
#[error("{what}: {why}")]
pub struct AppError {
    what: &'static str,
    why: String,
}

/// Prints the text for the operator: an error that `main` returns is printed with `Debug`.
impl fmt::Debug for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AppError {
    pub(super) fn new(what: &'static str, why: impl ToString) -> Self {
        Self { what, why: why.to_string() }
    }
}

impl From<ConfigError> for AppError {
    fn from(error: ConfigError) -> Self {
        Self::new("configuration", error)
    }
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        Self::new("database.url", error)
    }
}

impl From<RegistryError> for AppError {
    fn from(error: RegistryError) -> Self {
        Self::new("tools", error)
    }
}

impl From<RemoteError> for AppError {
    fn from(error: RemoteError) -> Self {
        let key = match &error {
            RemoteError::BaseUrl(_) => "model.base_url",
            RemoteError::ApiKey => "model.api_key",
            RemoteError::Client(_) => "model",
        };
        Self::new(key, error)
    }
}
