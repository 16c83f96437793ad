//! The agent: one turn as a loop of steps.
//!
//! A step is one model call. Its calls go through the gate: those that may run do, side by side, in the same
//! step; if any waits for a person, and nobody in this process answers for it, the loop stops there and the model is not
//! asked again. Whatever is told to
//! a page about calls and ends is committed first.

mod draft;
mod execution;
mod heartbeat;
mod history;
#[cfg(feature = "torture")]
mod planted;
mod retry;
mod step;
mod tasks;
mod turn;

pub(crate) use execution::Executor;
pub(crate) use heartbeat::Heartbeat;
pub(crate) use retry::persist;
pub(crate) use tasks::{POLL_INTERVAL, Tasks, Work};
pub(crate) use turn::{Agent, AskHandler, Ended, Turn};
