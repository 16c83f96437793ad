//! Streams: the events of turns as bytes, and messages in the form that pages build from these bytes.
//!
//! To add a dialect: add a module in `dialect` with its [`Dialect`], its [`Encoder`] and its reload, and name it in
//! [`Dialect::ALL`].

#![warn(missing_docs)]

pub mod config;
mod dialect;
#[cfg(test)]
mod fuzz;
mod hold_parts;
mod written;

pub use dialect::ui::ui_dialect::UiDialect;
pub use dialect::{ClientTraits, Dialect, Head, NothingToRead};

use bytes::BytesMut;
use holdpoint_core::card::CardPart;
use holdpoint_core::card::hold::{Card, Hold};
use holdpoint_core::decision::{Decision, Surface, Verdict};
use holdpoint_core::id::{MessageId, ToolCallId};
use holdpoint_core::run::TurnError;
use holdpoint_core::turn::TurnEvent;
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::sync::Arc;

/// Writes the events of a turn into a buffer, in one dialect, for one client. The output always consists of
/// whole lines or events, because clients parse a chunk only when it ends with one.
pub trait Encoder: Send + Debug {
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
pub struct Audience {
    /// The message that the turn writes.
    pub message_id: MessageId,
    /// The id of the client's request.
    pub request_id: String,
    /// The calls that the page shows as approved.
    pub approved: HashSet<ToolCallId>,
    /// The answers of the page to held calls, in this request.
    pub answers: HashMap<ToolCallId, PageDecision>,
    /// The cards of held calls for this client.
    pub cards: Arc<dyn Cards>,
}

/// The answer of a page to a held call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageDecision {
    /// Whether the page approves the call.
    pub approved: bool,
    /// Whether the server took the answer in this request.
    pub accepted: bool,
}

/// What a process knows about held calls for one reader, besides their rows.
pub trait Cards: Send + Sync + Debug {
    /// Returns the card of a held call.
    fn card(&self, hold: &Hold) -> Card;
    /// Returns the reader as an actor.
    fn reader(&self) -> String;
}

/// The cards of a process without tools, for tests and benchmarks.
#[derive(Debug)]
pub struct NoTools;

impl Cards for NoTools {
    fn card(&self, hold: &Hold) -> Card {
        Card {
            title: hold.tool_name.clone(),
            description: None,
            headline: None,
            parts: vec![CardPart::Inputs],
            mcp: None,
            constants: None,
            input_hash: hold.schema_hash.clone(),
            requested_by: self.reader(),
            obstacle: None,
            can_edit: false,
            can_remember: false,
            approvals_needed: 1,
            unaccepted: None,
        }
    }

    fn reader(&self) -> String {
        "user:local".to_owned()
    }
}

impl Audience {
    /// Returns a client that shows nothing of the message yet.
    pub fn new(message_id: MessageId, request_id: &str) -> Self {
        Self {
            message_id,
            request_id: request_id.to_owned(),
            approved: HashSet::new(),
            answers: HashMap::new(),
            cards: Arc::new(NoTools),
        }
    }

    /// Whether an answer of the page came after this decision. Pages post an answer again until they have the
    /// outcome, so an answer that agrees with the decision may be the decision. With a quorum the answer may be
    /// one of the votes.
    fn is_late(&self, hold: &Hold, call: ToolCallId, decision: &Decision) -> bool {
        let Some(answer) = self.answers.get(&call).filter(|answer| !answer.accepted) else { return false };
        let verdict = if answer.approved { Verdict::Approve } else { Verdict::Reject };
        if decision.verdict != verdict || decision.edited {
            return true;
        }
        let is_own = decision.surface == Surface::Stream && decision.by == self.cards.reader();
        let is_vote = answer.approved && self.cards.card(hold).approvals_needed > 1;
        !is_own && !is_vote
    }
}

/// Returns the text of a failure for clients.
fn failure(error: &TurnError, request_id: &str) -> String {
    format!("{}: {} (request {request_id})", error.code.word(), error.message)
}
