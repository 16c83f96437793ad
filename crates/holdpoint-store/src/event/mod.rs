//! Events, their numbers, and what is counted with them.

pub(crate) mod events;
pub(crate) mod new_event;
pub(crate) mod numbering;
pub(crate) mod reached;
