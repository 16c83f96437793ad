//! `[stream]`: how turns are streamed.

use crate::UiDialect;
use holdpoint_settings::{ConfigError, check_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[stream]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stream {
    /// `default_ui_dialect`: the dialect for a page of AI SDK 5 or later that names none.
    pub default_ui_dialect: UiDialect,
    /// `keep_alive`: the silence after which a stream sends a keep-alive. Zero sends none.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub keep_alive: Duration,
}

impl Default for Stream {
    fn default() -> Self {
        Self { default_ui_dialect: UiDialect::default(), keep_alive: Duration::from_secs(15) }
    }
}

impl Stream {
    /// Checks the values.
    ///
    /// # Errors
    /// The first value that is not allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_duration("stream.keep_alive", self.keep_alive)
    }
}
