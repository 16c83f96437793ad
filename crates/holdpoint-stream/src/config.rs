//! `[stream]`: how turns are streamed.

use crate::UiDialect;
use holdpoint_settings::{ConfigError, check_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[stream]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stream {
    /// Dialect for pages of AI SDK 5 or later that name none: one of the
    /// [dialects](pages.md#streams-and-sdk-versions) whose names begin with `ui-`. With the default, the first held call
    /// for such a page is logged.
    ///
    /// Value: a dialect. Default: `ui-v6`.
    pub default_ui_dialect: UiDialect,
    /// Silence after which a stream sends a keep-alive. `0s` sends none.
    ///
    /// Value: duration. Default: `15s`.
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
