//! Decisions: who sees a held call, what was decided, and what is remembered.

pub(crate) mod decisions;
pub(crate) mod delegations;
pub(crate) mod extensions;
pub(crate) mod grants;
pub(crate) mod hold_context;
pub(crate) mod inbox;
pub(crate) mod input_bounds;
pub(crate) mod notices;
pub(crate) mod opened;
pub(crate) mod quorum;
pub(crate) mod refusals;
pub(crate) mod reveals;
pub(crate) mod search;
