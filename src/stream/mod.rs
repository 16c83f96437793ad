//! Streams: what a turn says, as bytes, and messages as pages hold them once they have read those bytes.
//!
//! To add a dialect: a file with an [`Encoder`], named in [`encoder`].

mod data_v1;
#[cfg(test)]
mod fuzz;
mod ui_message;
mod ui_parts;
mod ui_reload;
mod v4_message;

pub(crate) use ui_reload::ui_reload;
pub(crate) use v4_message::v4_message;

use crate::domain::dialect::Dialect;
use crate::domain::id::{MessageId, ToolCallId};
use crate::domain::run::TurnError;
use crate::domain::turn::TurnEvent;
use bytes::BytesMut;
use std::collections::HashSet;
use std::fmt::Debug;

/// Writes what a turn says into a buffer, in one dialect, for one client. What is written is always whole lines or
/// events: clients parse a piece only when it ends with one.
pub(crate) trait Encoder: Send + Debug {
    /// What comes before all that is said.
    fn begin(&mut self, out: &mut BytesMut);
    /// One thing that is said.
    fn event(&mut self, event: &TurnEvent<'_>, out: &mut BytesMut);
    /// That the stream is alive, and nothing else.
    fn keep_alive(&self, out: &mut BytesMut);
    /// What comes behind all that is said.
    fn end(&mut self, out: &mut BytesMut);
}

/// For whom something is told.
#[derive(Debug, Clone)]
pub(crate) struct Audience {
    /// The message that is written.
    pub(crate) message_id: MessageId,
    /// The request that is answered.
    pub(crate) request_id: String,
    /// The calls that the page shows somebody's yes to.
    pub(crate) approved: HashSet<ToolCallId>,
}

/// What writes a stream of this dialect.
pub(crate) fn encoder(dialect: Dialect, audience: Audience) -> Box<dyn Encoder> {
    match dialect {
        Dialect::DataV1 => Box::new(data_v1::DataV1::new(audience.message_id, audience.request_id)),
        Dialect::Ui(dialect) => Box::new(ui_message::UiMessage::new(dialect, audience)),
    }
}

/// A failure as clients read it.
fn failure(error: &TurnError, request_id: &str) -> String {
    format!("{}: {} (request {request_id})", error.code.as_str(), error.message)
}
