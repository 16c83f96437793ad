//! `[stream]`: how turns are streamed.

use super::{ConfigError, duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The dialect of the UI message stream, by the approvals that the page supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum UiDialect {
    /// `ui-v5`: AI SDK 5, which has no approvals of its own. A data part shows the state of a call.
    #[serde(rename = "ui-v5")]
    V5,
    /// `ui-v6`: AI SDK 6, which has approvals of its own. AI SDK 7 reads it too.
    #[default]
    #[serde(rename = "ui-v6")]
    V6,
    /// `ui-v7`: AI SDK 7, which also reads decisions from the stream. AI SDK 6 fails on them.
    #[serde(rename = "ui-v7")]
    V7,
}

/// `[stream]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stream {
    /// `default_ui_dialect`: the dialect for a page of AI SDK 5 or later that names none.
    #[serde(deserialize_with = "super::sources::word")]
    pub default_ui_dialect: UiDialect,
    /// `keep_alive`: the silence after which a stream sends a keep-alive. Zero sends none.
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
