//! The dialects in which a turn is told.

use crate::config::UiDialect;

/// The words of a stream: which releases of the AI SDK read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `data-v1`: the data stream of AI SDK 4.
    DataV1,
    /// The UI message stream of AI SDK 5 and later.
    Ui(UiDialect),
}

impl Dialect {
    /// Whether pages post again by themselves as long as an answer that they gave shows no outcome.
    pub(crate) const fn posts_until_settled(self) -> bool {
        matches!(self, Self::Ui(_))
    }
}
