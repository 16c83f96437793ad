//! `[stream]`: how turns are told.

use super::{ConfigError, duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The UI message stream, by what a page can be asked in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum UiDialect {
    /// `ui-v5`: AI SDK 5, which has no approvals of its own; a data part says how a call stands.
    #[serde(rename = "ui-v5")]
    V5,
    /// `ui-v6`: AI SDK 6 and 7, which ask for approvals by themselves.
    #[default]
    #[serde(rename = "ui-v6")]
    V6,
}

/// `[stream]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stream {
    /// `default_ui_dialect`: what a page of AI SDK 5 or later is told that does not say which it is.
    #[serde(deserialize_with = "super::sources::word")]
    pub default_ui_dialect: UiDialect,
    /// `keep_alive`: after how long a silence a stream shows that it is alive; zero is never.
    #[serde(with = "super::sources::duration")]
    pub keep_alive: Duration,
}

impl Default for Stream {
    fn default() -> Self {
        Self { default_ui_dialect: UiDialect::default(), keep_alive: Duration::from_secs(15) }
    }
}

impl Stream {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        duration("stream.keep_alive", self.keep_alive)
    }
}
