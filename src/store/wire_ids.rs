//! The ids of calls on the wire. They are unique in a thread, and a unique index holds that.

use crate::domain::id::ToolCallId;
use crate::domain::wire_id;
use std::collections::HashSet;

/// How many ids of its own a call may get. One is enough, unless another call of the thread has it.
const PER_CALL: usize = 2;

/// Returns the ids that a call may get if the id that the model gave it is taken, or is none.
pub(super) fn own(id: ToolCallId) -> Vec<String> {
    wire_id::candidates(&id.to_string()).take(PER_CALL).collect()
}

/// Returns an id that no call of the thread has, and takes it. Providers repeat or omit ids.
pub(super) fn free(given: &str, id: ToolCallId, used: &mut HashSet<String>) -> String {
    let given = Some(given.to_owned()).filter(|given| !given.is_empty());
    let mut ids = given.into_iter().chain(own(id));
    // The id of a call is unique everywhere, and not every server takes it.
    ids.find(|id| used.insert(id.clone())).unwrap_or_else(|| id.to_string())
}
