//! Streams: the events of turns as bytes, and messages in the form that pages build from these bytes.
//!
//! To add a dialect: add a file with an [`Encoder`] and one with the reload, and an entry in
//! [`Dialect::ALL`].

mod data_v1;
mod dialect;
#[cfg(test)]
mod fuzz;
mod ui_message;
mod ui_parts;
mod ui_reload;
mod v4_message;
mod words;

pub(crate) use dialect::{ClientTraits, Dialect, Head, NothingToRead};

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

/// Returns the text of a failure for clients.
fn failure(error: &TurnError, request_id: &str) -> String {
    format!("{}: {} (request {request_id})", words::error_code(error.code), error.message)
}
