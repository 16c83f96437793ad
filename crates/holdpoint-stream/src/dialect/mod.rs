//! The list of the dialects. Each dialect has a module of its own here. Everything outside of these modules that differs between
//! dialects is looked up in the list.

mod data_v1;
pub(crate) mod ui;
mod ui_v5;
mod ui_v6;
mod ui_v7;

#[cfg(test)]
use crate::fuzz::PageTraits;
use crate::{Audience, Cards, Encoder, UiDialect};
use data_v1::DATA_V1;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::message::Message;
use serde_json::Value;
use std::fmt::Debug;

/// The format of a stream, which determines the releases of the AI SDK that can read it.
#[derive(Debug)]
pub struct Dialect {
    /// The name in requests for streams.
    pub name: &'static str,
    /// The name in requests for messages, in the form that the pages of this dialect build from its streams.
    pub format: &'static str,
    /// The headers of a stream.
    pub head: &'static Head,
    /// Whether it is a version of the UI message stream. The requests of such pages do not distinguish the versions, so
    /// the configuration names the one for pages that name none.
    pub is_ui: bool,
    /// How its pages behave.
    pub client: ClientTraits,
    /// The response to a client that attaches while there is nothing to read.
    pub nothing_to_read: NothingToRead,
    protocol: &'static dyn Protocol,
    /// What the fuzz test expects of its pages, beside the message of a reload.
    #[cfg(test)]
    pub(crate) page: PageTraits,
}

/// The streams of a dialect, and the messages that its pages build from them.
trait Protocol: Sync + Debug {
    /// Creates an encoder for one client.
    fn encoder(&'static self, audience: Audience) -> Box<dyn Encoder>;
    /// [`Dialect::reload`]
    fn reload(&self, message: &Message, turn_began: Option<Timestamp>, cards: &dyn Cards) -> Option<Value>;
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

impl Dialect {
    /// The dialect of pages that name none and do not post the bodies of the UI message stream.
    pub const DATA_V1: &'static Self = &DATA_V1;

    /// All dialects, in the order of their documentation.
    pub const ALL: &'static [&'static Self] =
        &[Self::DATA_V1, UiDialect::V5.dialect(), UiDialect::V6.dialect(), UiDialect::V7.dialect()];

    /// Creates an encoder for one client.
    pub fn encoder(&self, audience: Audience) -> Box<dyn Encoder> {
        self.protocol.encoder(audience)
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
        self.protocol.reload(message, turn_began, cards)
    }
}

impl PartialEq for Dialect {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Dialect {}

impl Head {
    /// Returns the heads of all dialects, each one once.
    pub fn all() -> Vec<&'static Self> {
        let mut heads = Vec::new();
        for Dialect { head, .. } in Dialect::ALL {
            if !heads.contains(head) {
                heads.push(*head);
            }
        }
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
    fn the_configuration_names_each_version_of_the_ui_message_stream_and_no_other_dialect() {
        for dialect in Dialect::ALL {
            let named = serde_json::from_value::<UiDialect>(json!(dialect.name));
            match named {
                Ok(named) => assert_eq!((json!(named), dialect.is_ui), (json!(dialect.name), true)),
                Err(_) => assert!(!dialect.is_ui, "{}", dialect.name),
            }
        }
        let unknown = serde_json::from_value::<UiDialect>(json!("ui-v0")).unwrap_err().to_string();
        assert!(unknown.contains("`ui-v5`, `ui-v6`"), "{unknown}");
    }
}
