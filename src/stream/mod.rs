//! Streams: the events of turns as bytes, and messages in the form that pages build from these bytes.
//!
//! To add a dialect: add a file with an [`Encoder`], and name it in [`encoder`].

mod data_v1;
mod dialect;
#[cfg(test)]
mod fuzz;
mod ui_message;
mod ui_parts;
mod ui_reload;
mod v4_message;
mod words;

pub(crate) use dialect::{ClientTraits, Dialect};
pub(crate) use ui_reload::ui_reload;
pub(crate) use v4_message::v4_message;

use crate::domain::id::{MessageId, ToolCallId};
use crate::domain::run::TurnError;
use crate::domain::turn::TurnEvent;
use bytes::BytesMut;
use std::collections::HashSet;
use std::fmt::Debug;

/// Writes the events of a turn into a buffer, in one dialect, for one client. The output always consists of
/// whole lines or events, because clients parse a chunk only when it ends with one.
pub(crate) trait Encoder: Send + Debug {
    /// Writes the beginning of the stream.
    fn begin(&mut self, out: &mut BytesMut);
    /// Writes one event.
    fn event(&mut self, event: &TurnEvent<'_>, out: &mut BytesMut);
    /// Writes a sign of life without content.
    fn keep_alive(&self, out: &mut BytesMut);
    /// Writes the end of the stream.
    fn end(&mut self, out: &mut BytesMut);
}

/// The client of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Audience {
    /// The message that the turn writes.
    pub(crate) message_id: MessageId,
    /// The id of the client's request.
    pub(crate) request_id: String,
    /// The calls that the page shows as approved.
    pub(crate) approved: HashSet<ToolCallId>,
}

/// Creates the encoder for this dialect.
pub(crate) fn encoder(dialect: Dialect, audience: Audience) -> Box<dyn Encoder> {
    match dialect {
        Dialect::DataV1 => Box::new(data_v1::DataV1::new(audience.message_id, audience.request_id)),
        Dialect::Ui(dialect) => Box::new(ui_message::UiMessage::new(dialect, audience)),
    }
}

/// Returns the text of a failure for clients.
fn failure(error: &TurnError, request_id: &str) -> String {
    format!("{}: {} (request {request_id})", words::error_code(error.code), error.message)
}
