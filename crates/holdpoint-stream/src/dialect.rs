//! The list of the dialects. Everything outside this module that differs between dialects is looked up here.

use super::data_v1::DataV1;
use super::ui_message::UiMessage;
use super::ui_reload::ui_reload;
use super::v4_message::v4_message;
use super::{Audience, Cards, Encoder};
use crate::UiDialect;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::message::Message;
use serde_json::Value;

/// The format of a stream, which determines the releases of the AI SDK that can read it.
#[derive(Debug)]
pub struct Dialect {
    /// The name in requests for streams.
    pub name: &'static str,
    /// The name in requests for messages, in the form that the pages of this dialect build from its streams.
    pub format: &'static str,
    /// The headers of a stream.
    pub head: &'static Head,
    /// How its pages behave.
    pub client: ClientTraits,
    /// The response to a client that attaches while there is nothing to read.
    pub nothing_to_read: NothingToRead,
    encoder: fn(Audience) -> Box<dyn Encoder>,
    reload: fn(&Message, Option<Timestamp>, &dyn Cards) -> Option<Value>,
}

/// The headers of the response, and the documentation of its body.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The value of `content-type`.
    pub content_type: &'static str,
    /// The media type without parameters, because some generators accept none.
    pub media_type: &'static str,
    /// The name of the header that announces the protocol.
    pub protocol: &'static str,
    /// The type in the schema. It is empty for events: generators disagree whether the schema describes the
    /// whole stream or one event.
    pub schema_type: &'static str,
    /// The text in the OpenAPI document.
    pub description: &'static str,
}

/// How a client behaves beside the bytes that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTraits {
    /// The client posts a decision again and again until the outcome of the call shows.
    pub reposts_until_settled: bool,
    /// The client reads a continuation as more of the message that it continues. So a client that has nothing
    /// of that message needs its earlier steps in the stream. Other clients read a message of its own.
    pub needs_earlier_steps: bool,
    /// The client resumes a run with a GET, after it learned of a decision.
    pub resumes_by_get: bool,
}

/// The response without a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NothingToRead {
    /// A stream without events, because the client treats any other response as a failure.
    EmptyStream,
    /// A response without a body.
    NoContent,
}

const DATA_STREAM: Head = Head {
    content_type: "text/plain; charset=utf-8",
    media_type: "text/plain",
    protocol: "x-vercel-ai-data-stream",
    schema_type: "string",
    description: "The data stream protocol of AI SDK 4: lines of `code:json`.",
};

const UI_MESSAGE_STREAM: Head = Head {
    content_type: "text/event-stream",
    media_type: "text/event-stream",
    protocol: "x-vercel-ai-ui-message-stream",
    schema_type: "",
    description: "The UI message stream of AI SDK 5 to 7: Server-Sent Events of JSON chunks, then `[DONE]`.",
};

/// The pages of the UI message stream.
const UI_PAGE: ClientTraits =
    ClientTraits { reposts_until_settled: true, needs_earlier_steps: true, resumes_by_get: false };

impl Dialect {
    /// The data stream of AI SDK 4.
    pub const DATA_V1: &'static Self = &Self {
        name: "data-v1",
        format: "v4",
        head: &DATA_STREAM,
        client: ClientTraits {
            reposts_until_settled: false,
            needs_earlier_steps: false,
            resumes_by_get: true,
        },
        nothing_to_read: NothingToRead::EmptyStream,
        encoder: |audience| Box::new(DataV1::new(audience)),
        reload: v4_message,
    };

    /// The UI message stream of AI SDK 5.
    pub const UI_V5: &'static Self = &Self {
        name: "ui-v5",
        format: "ui-v5",
        head: &UI_MESSAGE_STREAM,
        client: UI_PAGE,
        nothing_to_read: NothingToRead::NoContent,
        encoder: |audience| Box::new(UiMessage::new(UiDialect::V5, audience)),
        reload: |message, _, cards| ui_reload(message, UiDialect::V5, cards),
    };

    /// The UI message stream of AI SDK 6, which AI SDK 7 reads too.
    pub const UI_V6: &'static Self = &Self {
        name: "ui-v6",
        format: "ui-v6",
        head: &UI_MESSAGE_STREAM,
        client: UI_PAGE,
        nothing_to_read: NothingToRead::NoContent,
        encoder: |audience| Box::new(UiMessage::new(UiDialect::V6, audience)),
        reload: |message, _, cards| ui_reload(message, UiDialect::V6, cards),
    };

    /// The UI message stream of AI SDK 7.
    pub const UI_V7: &'static Self = &Self {
        name: "ui-v7",
        format: "ui-v7",
        head: &UI_MESSAGE_STREAM,
        client: UI_PAGE,
        nothing_to_read: NothingToRead::NoContent,
        encoder: |audience| Box::new(UiMessage::new(UiDialect::V7, audience)),
        reload: |message, _, cards| ui_reload(message, UiDialect::V7, cards),
    };

    /// All dialects, in the order of their documentation.
    pub const ALL: [&'static Self; 4] = [Self::DATA_V1, Self::UI_V5, Self::UI_V6, Self::UI_V7];

    /// Returns the dialect of a configured word.
    pub const fn of_ui(word: UiDialect) -> &'static Self {
        match word {
            UiDialect::V5 => Self::UI_V5,
            UiDialect::V6 => Self::UI_V6,
            UiDialect::V7 => Self::UI_V7,
        }
    }

    /// Creates an encoder for one client.
    pub fn encoder(&self, audience: Audience) -> Box<dyn Encoder> {
        (self.encoder)(audience)
    }

    /// Returns one message as the pages of this dialect hold it; `None` if they hold no such message yet. If
    /// a turn writes the message, `turn_began` is the begin of that turn. Clients that get the earlier steps
    /// in the stream of that turn do not need the time.
    pub fn reload(
        &self,
        message: &Message,
        turn_began: Option<Timestamp>,
        cards: &dyn Cards,
    ) -> Option<Value> {
        (self.reload)(message, turn_began, cards)
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Head {
    /// Returns the heads of all dialects, each one once.
    pub fn all() -> Vec<&'static Self> {
        let mut heads: Vec<_> = Dialect::ALL.iter().map(|dialect| dialect.head).collect();
        heads.dedup();
        heads
    }
}

impl ClientTraits {
    /// No client reads.
    pub const NO_CLIENT: Self =
        Self { reposts_until_settled: false, needs_earlier_steps: false, resumes_by_get: false };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::HashSet;

    #[test]
    fn every_dialect_has_names_of_its_own() {
        let names: HashSet<_> = Dialect::ALL.iter().map(|dialect| dialect.name).collect();
        let formats: HashSet<_> = Dialect::ALL.iter().map(|dialect| dialect.format).collect();
        assert_eq!((names.len(), formats.len()), (Dialect::ALL.len(), Dialect::ALL.len()));
    }

    #[test]
    fn a_dialect_has_the_same_name_in_the_configuration_and_in_requests() {
        for word in [UiDialect::V5, UiDialect::V6, UiDialect::V7] {
            assert_eq!(json!(word), Dialect::of_ui(word).name);
        }
    }
}
