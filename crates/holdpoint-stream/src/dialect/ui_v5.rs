//! The dialect `ui-v5`: AI SDK 5, which has no approvals of its own. A data part shows the state of a call.

use super::ui::{Approvals, HEAD, PAGE, UiVersion};
#[cfg(test)]
use crate::fuzz::{PageEnd, PageTraits};
use crate::{Dialect, NothingToRead, UiDialect};

static UI_V5: Dialect = Dialect {
    name: "ui-v5",
    format: "ui-v5",
    head: &HEAD,
    is_ui: true,
    client: PAGE,
    nothing_to_read: NothingToRead::NoContent,
    protocol: &UiVersion { approvals: Approvals::DataParts, has_finish_reason: false },
    #[cfg(test)]
    page: PageTraits { end: PageEnd::Nothing, keeps_own_answer: false },
};

impl UiDialect {
    /// `ui-v5`: AI SDK 5, which has no approvals of its own. A data part shows the state of a call.
    pub const V5: Self = Self(&UI_V5);
}
