//! The dialect `data-v1`: the data stream of AI SDK 4.

mod encoder;
mod reload;

use super::{ClientTraits, Dialect, Head, NothingToRead, Protocol};
#[cfg(test)]
use crate::fuzz::{PageEnd, PageTraits};
use crate::{Audience, Cards, Encoder};
use encoder::DataV1;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::message::Message;
use serde_json::Value;

/// The data stream of AI SDK 4.
pub(super) static DATA_V1: Dialect = Dialect {
    name: "data-v1",
    format: "v4",
    head: &Head {
        content_type: "text/plain; charset=utf-8",
        media_type: "text/plain",
        protocol: "x-vercel-ai-data-stream",
        schema_type: "string",
        description: "The data stream protocol of AI SDK 4: lines of `code:json`.",
    },
    is_ui: false,
    client: ClientTraits { reposts_until_settled: false, needs_earlier_steps: false, resumes_by_get: true },
    nothing_to_read: NothingToRead::EmptyStream,
    protocol: &DataStream,
    #[cfg(test)]
    page: PageTraits { end: PageEnd::ReasonAndUsage, keeps_own_answer: false },
};

/// The protocol of this dialect.
#[derive(Debug)]
struct DataStream;

impl Protocol for DataStream {
    fn encoder(&self, audience: Audience) -> Box<dyn Encoder> {
        Box::new(DataV1::new(audience))
    }

    fn reload(&self, message: &Message, turn_began: Option<Timestamp>, cards: &dyn Cards) -> Option<Value> {
        reload::reload(message, turn_began, cards)
    }
}
