//! What a stream has written about calls, so that a reader gets each outcome once: a backfill and the turn after it
//! may both report a call.

use holdpoint_core::id::ToolCallId;
use holdpoint_core::turn::RenderedResult;
use std::collections::{HashMap, HashSet};

/// What one stream has written.
#[derive(Debug, Default)]
pub(super) struct WrittenParts {
    results: HashMap<ToolCallId, WrittenResult>,
    holds: HashSet<ToolCallId>,
    decisions: HashSet<ToolCallId>,
}

/// A written result. An output does not change, and the text of a failure may.
#[derive(Debug, PartialEq, Eq)]
enum WrittenResult {
    Output,
    Text(String),
}

impl WrittenResult {
    fn of(shown: &RenderedResult) -> Self {
        match shown {
            RenderedResult::Output(_) => Self::Output,
            RenderedResult::Error(text) | RenderedResult::Refused(_, text) => Self::Text(text.clone()),
        }
    }
}

impl WrittenParts {
    /// Whether the stream has this result of the call.
    pub(super) fn has_result(&self, call: ToolCallId, shown: &RenderedResult) -> bool {
        self.results.get(&call).is_some_and(|written| *written == WrittenResult::of(shown))
    }

    /// Notes a result.
    pub(super) fn result(&mut self, call: ToolCallId, shown: &RenderedResult) {
        self.results.insert(call, WrittenResult::of(shown));
    }

    /// Notes the card of a call. Returns whether it is new.
    pub(super) fn hold(&mut self, call: ToolCallId) -> bool {
        self.holds.insert(call)
    }

    /// Whether the stream has the decision about the call.
    pub(super) fn has_decision(&self, call: ToolCallId) -> bool {
        self.decisions.contains(&call)
    }

    /// Notes the decision about a call. Returns whether it is new.
    pub(super) fn decision(&mut self, call: ToolCallId) -> bool {
        self.decisions.insert(call)
    }
}
