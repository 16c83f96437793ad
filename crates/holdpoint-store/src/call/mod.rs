//! Calls: their rows, transitions, executions, and the requests of their tools.

pub(crate) mod call_policies;
pub(crate) mod calls;
pub(crate) mod decide;
pub(crate) mod definitions;
pub(crate) mod earlier_calls;
pub(crate) mod establish;
pub(crate) mod executions;
pub(crate) mod listing;
pub(crate) mod locked_call;
pub(crate) mod owners;
pub mod permit;
pub(crate) mod progress;
pub mod request_sender;
pub(crate) mod request_votes;
pub(crate) mod tool_requests;
pub(crate) mod transitions;
pub mod waited;
pub(crate) mod workers;
