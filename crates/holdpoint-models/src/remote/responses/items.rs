//! The items of an answer of `/responses`.

use super::super::answer::TextSoFar;
use serde_json::Value;

/// The kinds of items that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Call,
}

impl Kind {
    pub(super) fn of(item: &Value) -> Option<Self> {
        match item.get("type").and_then(Value::as_str)? {
            "message" => Some(Self::Message),
            "reasoning" => Some(Self::Reasoning),
            "function_call" => Some(Self::Call),
            _ => None,
        }
    }
}

/// An item of an answer.
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) id: Option<String>,
    pub(super) output_index: Option<u64>,
    /// The parts of a text, each with its index.
    pub(super) parts: Vec<(Option<u64>, TextSoFar)>,
    pub(super) call: Option<Call>,
    pub(super) has_ended: bool,
    /// The item as it goes back, without a call's name and arguments.
    pub(super) kept: Option<Value>,
}

/// What an item that is a call has.
pub(super) struct Call {
    pub(super) index: usize,
    pub(super) call_id: Option<String>,
    /// The arguments in the first event of the item. They count if no others follow.
    pub(super) arguments: Option<String>,
}

/// The place that an event names.
#[derive(Default)]
pub(super) struct EventPlace {
    pub(super) item_id: Option<String>,
    pub(super) output_index: Option<u64>,
    pub(super) part: Option<u64>,
}

impl Item {
    pub(super) fn is_blank(&self) -> bool {
        self.parts.iter().all(|(_, said)| said.is_empty())
    }

    /// Returns the part with this index, or the last part. Adds a part that is new.
    pub(super) fn part(&mut self, index: Option<u64>) -> Option<&mut TextSoFar> {
        let known = self.parts.iter().rposition(|(it, _)| index.is_none() || it.is_none() || *it == index);
        let at = known.unwrap_or(self.parts.len());
        if known.is_none() {
            self.parts.push((index, TextSoFar::default()));
        }
        self.parts.get_mut(at).map(|(_, said)| said)
    }
}
