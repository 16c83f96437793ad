//! The agent: one turn as a loop of steps.
//!
//! A step is one model call. The calls of a step go through the gate. Allowed calls run concurrently in the
//! same step. If a call is held, and no handler of this process decides it, the loop ends there and the model
//! is not called again. Every event about a call or an end is emitted after its commit.
//!
//! # One turn
//!
//! 1. [`Agent::open_first`] computes the history (`history::project`) and seals its new texts (`Write::open_step` of
//!    the store) in the transaction of the admission. For a later step `Agent::open_next` keeps the request of the step
//!    before, reads only that step (`Write::step_of`), and adds it with the answers to its calls
//!    (`history::project_step`), in one transaction: what was sent does not change, and new notes are sent with the
//!    first step of a message only. The items that a provider needs back with a step (signed reasoning, encrypted
//!    items) are its `provider_state`, and return to their origin only: the same wire, address and model.
//! 2. `Agent::call_model` streams the model and emits deltas. It retries while the model is unavailable and no delta
//!    was emitted. If the model's server refuses a request as too long, `Agent::call_with_less` sends it once more,
//!    shorter (`window`).
//! 3. `Agent::commit` judges each call (`judge`, `Gate::judge`, `Policy::evaluate`) and finds duplicates with the
//!    thread locked. `Write::commit_step` stores the step and its calls in one transaction: `executing`, `pending`,
//!    `rejected`, `cancelled` or `invalid`. After the commit it returns the permits. If the run was asked to stop
//!    before that commit, the step is stored as `interrupted` and without calls. If a call would be held without the
//!    preview that its tool has, the transaction is rolled back, `previews` makes the missing previews, and the commit
//!    begins again. If nothing follows the step, the turn ends in the same transaction: a step without calls, and a
//!    step with a hold and no call that runs, unless a handler is asked. Such a commit starts no tool, so it is retried
//!    if the database does not confirm it.
//! 4. `Agent::run_cleared` runs the permits side by side (`Executor::run`) and emits each outcome after its commit.
//! 5. If the step holds calls, `Agent::ask_handler` asks the handler about each of them at once, for at most
//!    `approval.handler_timeout`. A handler that fails or panics counts as deferred; the handler `Deferred` is not
//!    asked at all. If all held calls end, the turn continues in the same stream.
//! 6. A step with an open held call, or with a call that a child run or an owner executes, ends the turn as `waiting`.
//!    A step with other calls leads to the next step. A step without calls completes the run.
//!
//! No transaction is open while a model answers, a tool runs or a handler decides. Commit, then emit: only deltas are
//! live.

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
pub(crate) use heartbeat::{Heartbeat, Heartbeats, LeaseInForce, StartCommitted, Work};
#[cfg(feature = "bench")]
pub(crate) use history::project;
pub(crate) use offer::{OutcomeOffer, Settlement, UnsettledOutcome};
pub(crate) use retry::persist;
pub(crate) use tasks::Tasks;
pub(crate) use turn::{Agent, AskHandler, EndedTurn, FirstStep, Turn};
pub(crate) use wait::Wait;
pub(crate) use wake::{Wake, WakeSignal};
