//! The dialect `ui-v6`: AI SDK 6, which has approvals of its own. AI SDK 7 reads it too.

use super::ui::{Approvals, HEAD, PAGE, UiVersion};
#[cfg(test)]
use crate::fuzz::{PageEnd, PageTraits};
use crate::{Dialect, NothingToRead, UiDialect};

static UI_V6: Dialect = Dialect {
    name: "ui-v6",
    format: "ui-v6",
    head: &HEAD,
    is_ui: true,
    client: PAGE,
    nothing_to_read: NothingToRead::NoContent,
    protocol: &UiVersion { approvals: Approvals::Requests, has_finish_reason: true },
    #[cfg(test)]
    page: PageTraits { end: PageEnd::Reason, keeps_own_answer: true },
};

impl UiDialect {
    /// `ui-v6`: AI SDK 6, which has approvals of its own. AI SDK 7 reads it too.
    pub const V6: Self = Self(&UI_V6);
}
