//! Faults in the requests to a model, and the errors that name them.

use serde_json::Value;

/// One fault in an otherwise valid request, at a JSON pointer.
pub enum RequestFault {
    /// The value is replaced; null counts as absent.
    Is(Value),
    /// This entry is missing from the list.
    Cut(usize),
    /// This entry is in the list twice.
    Double(usize),
    /// These two entries of the list are swapped.
    Swap(usize, usize),
}
pub(crate) use RequestFault::{Cut, Double, Is, Swap};

pub(crate) const REFUSED: &str = "a role that there is not";
pub(crate) const LATE: &str = "instructions come late";
pub(crate) const BEGIN: &str = "does not begin with the user";
pub(crate) const LAST: &str = "the last word is not the user's";
pub(crate) const LONELY: &str = "answers no call directly before it";
pub(crate) const UNANSWERED: &str = "call b, number 1, has no answer";
pub(crate) const MIXED_UP: &str = "Some(\"b\") is answered where a";
