//! What a stream has told about calls, so that a reader gets each outcome once: a backfill and the turn after it
//! may both report a call.

use crate::domain::id::ToolCallId;
use crate::domain::turn::RenderedResult;
use std::collections::{HashMap, HashSet};

/// What one stream has told.
#[derive(Debug, Default)]
pub(super) struct Told {
    results: HashMap<ToolCallId, ToldResult>,
    holds: HashSet<ToolCallId>,
    decisions: HashSet<ToolCallId>,
}

/// A told result. An output does not change, and the text of a failure may.
#[derive(Debug, PartialEq, Eq)]
enum ToldResult {
    Output,
    Text(String),
}

impl ToldResult {
    fn of(shown: &RenderedResult) -> Self {
        match shown {
            RenderedResult::Output(_) => Self::Output,
            RenderedResult::Error(text) | RenderedResult::Refused(_, text) => Self::Text(text.clone()),
        }
    }
}

impl Told {
    /// Whether the stream has told this result of the call.
    pub(super) fn has_result(&self, call: ToolCallId, shown: &RenderedResult) -> bool {
        self.results.get(&call).is_some_and(|told| *told == ToldResult::of(shown))
    }

    /// Notes a result.
    pub(super) fn result(&mut self, call: ToolCallId, shown: &RenderedResult) {
        self.results.insert(call, ToldResult::of(shown));
    }

    /// Notes the card of a call. Returns whether it is new.
    pub(super) fn hold(&mut self, call: ToolCallId) -> bool {
        self.holds.insert(call)
    }

    /// Whether the stream has told the decision about the call.
    pub(super) fn has_decision(&self, call: ToolCallId) -> bool {
        self.decisions.contains(&call)
    }

    /// Notes the decision about a call. Returns whether it is new.
    pub(super) fn decision(&mut self, call: ToolCallId) -> bool {
        self.decisions.insert(call)
    }
}
