//! The dialects in which a turn is told.

use serde::{Deserialize, Serialize};

/// The words of a stream: which releases of the AI SDK read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `data-v1`: the data stream of AI SDK 4.
    DataV1,
    /// The UI message stream of AI SDK 5 and later.
    Ui(UiDialect),
}

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

impl Dialect {
    /// Whether pages post again by themselves as long as an answer that they gave shows no outcome.
    pub(crate) const fn posts_until_settled(self) -> bool {
        matches!(self, Self::Ui(_))
    }
}
