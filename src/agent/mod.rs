//! The agent: one turn as a loop of steps.
//!
//! A step is one model call. The calls of a step go through the gate. Allowed calls run concurrently in the
//! same step. If a call is held, and no handler of this process decides it, the loop ends there and the model
//! is not called again. Every event about a call or an end is emitted after its commit.

mod draft;
mod execution;
mod heartbeat;
mod history;
mod judge;
mod offer;
mod polling;
mod previews;
mod progress;
mod retry;
mod rounds;
mod step;
mod tasks;
mod turn;
mod wait;
mod wake;
mod window;

pub(crate) use execution::{Executor, Ran};
pub(crate) use heartbeat::Heartbeat;
#[cfg(feature = "bench")]
pub(crate) use history::project;
pub(crate) use offer::{Offer, Settlement, Unsettled};
pub(crate) use retry::persist;
pub(crate) use tasks::{Tasks, Work};
pub(crate) use turn::{Agent, AskHandler, Ended, FirstStep, StartCommitted, Turn};
pub(crate) use wait::Wait;
pub(crate) use wake::{Wake, WakeSignal};
