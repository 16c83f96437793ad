//! The words for the dialects of the UI message stream.

use serde::{Deserialize, Serialize};

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
