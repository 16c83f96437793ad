//! The UI message stream of AI SDK 5 and later. Each version of it is a dialect, with a file beside this folder.

mod encoder;
pub(crate) mod parts;
mod reload;
pub(crate) mod ui_dialect;

use super::{ClientTraits, Head, Protocol};
use crate::{Audience, Cards, Encoder};
use encoder::UiMessage;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::message::Message;
use serde_json::Value;

pub(super) const HEAD: Head = Head {
    content_type: "text/event-stream",
    media_type: "text/event-stream",
    protocol: "x-vercel-ai-ui-message-stream",
    schema_type: "",
    description: "The UI message stream of AI SDK 5 and later: Server-Sent Events of JSON chunks, then `[DONE]`.",
};

/// The pages of the UI message stream.
pub(super) const PAGE: ClientTraits =
    ClientTraits { reposts_until_settled: true, needs_earlier_steps: true, resumes_by_get: false };

/// What a version of the UI message stream can say.
#[derive(Debug)]
pub(super) struct UiVersion {
    pub(super) approvals: Approvals,
    /// Whether the end of a stream has the reason of the end.
    pub(super) has_finish_reason: bool,
}

/// How a page learns of held calls, and of the decisions about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approvals {
    /// By data parts with the states of the calls. The SDK has no approvals, and no state for denied calls.
    DataParts,
    /// By chunks that ask for an approval. No chunk carries the decision: a page has the answer of its own user.
    Requests,
    /// By chunks that ask for an approval, and chunks with the decision in force.
    RequestsAndDecisions,
}

impl UiVersion {
    /// Whether the SDK has approvals of its own.
    fn has_approvals(&self) -> bool {
        self.approvals != Approvals::DataParts
    }

    /// Whether the stream has the decisions in force as answers to approval requests.
    fn has_decisions(&self) -> bool {
        self.approvals == Approvals::RequestsAndDecisions
    }
}

impl Protocol for UiVersion {
    fn encoder(&'static self, audience: Audience) -> Box<dyn Encoder> {
        Box::new(UiMessage::new(self, audience))
    }

    /// The stream of a turn begins with the first part of its message, so the time of its begin is not needed.
    fn reload(&self, message: &Message, _: Option<Timestamp>, cards: &dyn Cards) -> Option<Value> {
        reload::reload(message, self, cards)
    }
}
