//! The dialect `ui-v7`: AI SDK 7, which also reads decisions from the stream. AI SDK 6 fails on them.

use super::ui::{Approvals, HEAD, PAGE, UiVersion};
#[cfg(test)]
use crate::fuzz::{PageEnd, PageTraits};
use crate::{Dialect, NothingToRead, UiDialect};

static UI_V7: Dialect = Dialect {
    name: "ui-v7",
    format: "ui-v7",
    head: &HEAD,
    is_ui: true,
    client: PAGE,
    nothing_to_read: NothingToRead::NoContent,
    protocol: &UiVersion { approvals: Approvals::RequestsAndDecisions, has_finish_reason: true },
    #[cfg(test)]
    page: PageTraits { end: PageEnd::Reason, keeps_own_answer: false },
};

impl UiDialect {
    /// `ui-v7`: AI SDK 7, which also reads decisions from the stream. AI SDK 6 fails on them.
    pub const V7: Self = Self(&UI_V7);
}
