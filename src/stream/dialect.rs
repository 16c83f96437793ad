//! The dialects of streams.

use crate::config::UiDialect;

/// The format of a stream, which determines the releases of the AI SDK that can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `data-v1`: the data stream of AI SDK 4.
    DataV1,
    /// The UI message stream of AI SDK 5 and later.
    Ui(UiDialect),
}

impl Dialect {
    /// Whether pages post repeatedly as long as a decision of theirs has no outcome.
    pub(crate) const fn posts_until_settled(self) -> bool {
        matches!(self, Self::Ui(_))
    }
}
