//! Approvals: what a person says about a held call, and what follows.
//!
//! ```text
//! decide   pending -> approved | rejected    one compare-and-set, with the decision's row, committed
//! execute  approved -> executing             another; whoever makes it holds the permit
//!          the tool runs, in a tracked task, with no transaction open
//!          executing -> succeeded | failed | interrupted
//! ```
//!
//! Every surface a decision can come in by ends in [`Approvals::decide`].

mod decide;
mod execute;

pub(crate) use decide::{DecideError, Decided, Decision};

use crate::store::Store;
use crate::tools::gate::Gate;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// The approvals of one server.
#[derive(Debug, Clone)]
pub(crate) struct Approvals {
    store: Store,
    gate: Gate,
    /// Owns running tools, so that nothing that goes away takes one with it.
    tasks: TaskTracker,
    /// This process, as the owner of what it runs.
    owner: String,
    times: Times,
    /// Counts the calls that this process settled, so that who waits for one looks again.
    settled: watch::Sender<u64>,
}

/// Times of decisions and executions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// How long after a yes a call may be begun.
    pub(crate) start_deadline: Duration,
    /// How long an execution may be silent before it is taken for dead.
    pub(crate) lease: Duration,
    /// How long a decider waits for the outcome.
    pub(crate) wait: Duration,
}

impl Approvals {
    pub(crate) fn new(store: Store, gate: Gate, tasks: TaskTracker, owner: String, times: Times) -> Self {
        Self { store, gate, tasks, owner, times, settled: watch::Sender::new(0) }
    }

    /// The hash a page has to echo to say that it decides what it was shown: with the schema of the tool as
    /// it is registered now, so that it tells when the tool has changed since.
    pub(crate) fn shown_hash(&self, call: &crate::domain::call::ToolCall) -> String {
        let registered = self.gate.registry().get(&call.name);
        let schema_hash = registered.map_or(&call.schema_hash, |tool| &tool.schema_hash);
        crate::domain::call::input_hash(&call.name, &call.input, schema_hash)
    }
}
