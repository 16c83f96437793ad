//! Outcomes that the executor offers to a request. The request stores the outcome in the transaction with which it
//! resumes the run, instead of a transaction of the outcome alone. If it does not, the executor stores the outcome: a
//! drop of any value of this module returns the outcome to the executor.

use holdpoint_core::call::{Execution, Outcome, State};
use holdpoint_core::id::ToolCallId;
use holdpoint_store::{SettleOutcome, StoreError, Write};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a request may take to store an outcome, which a request with a free connection does in milliseconds. After
/// that the executor stores the outcome too, and the later transaction of the two changes nothing.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// The place where an executor offers the outcome of one execution.
#[derive(Debug)]
pub(crate) struct OutcomeOffer(oneshot::Sender<UnsettledOutcome>);

/// The outcome of an execution that no transaction has stored yet.
#[derive(Debug)]
pub(crate) struct UnsettledOutcome {
    tool_call_id: ToolCallId,
    execution: Execution,
    outcome: Outcome,
    /// The text for the model.
    result: String,
    stored: oneshot::Sender<Box<State>>,
}

/// An outcome that is part of an open transaction.
#[derive(Debug)]
pub(crate) struct Settlement {
    state: Box<State>,
    stored: oneshot::Sender<Box<State>>,
}

impl OutcomeOffer {
    /// Returns an offer, and the receiver of its outcome.
    pub(crate) fn new() -> (Self, oneshot::Receiver<UnsettledOutcome>) {
        let (offer, outcome) = oneshot::channel();
        (Self(offer), outcome)
    }

    /// Offers an outcome, for at most a third of the lease of its execution, which is not renewed any more. Returns the
    /// state of the call if a request has stored the outcome.
    pub(super) async fn make(
        self,
        tool_call_id: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: &str,
        lease: Duration,
    ) -> Option<Box<State>> {
        let (stored, is_stored) = oneshot::channel();
        let (outcome, result) = (outcome.clone(), result.to_owned());
        self.0.send(UnsettledOutcome { tool_call_id, execution, outcome, result, stored }).ok()?;
        timeout(STORE_TIMEOUT.min(lease / 3), is_stored).await.ok()?.ok()
    }
}

impl UnsettledOutcome {
    /// Settles the execution in this transaction. Returns `None` if another transaction has ended the call.
    pub(crate) async fn settle(self, write: &Write) -> Result<Option<Settlement>, StoreError> {
        let Self { tool_call_id, execution, outcome, result, stored } = self;
        // A call with a known outcome does not start again.
        let settled = write.settle(tool_call_id, execution, &outcome, result, Duration::ZERO).await?;
        Ok(match settled {
            SettleOutcome::Ended(state) => Some(Settlement { state, stored }),
            SettleOutcome::Again | SettleOutcome::Nothing => None,
        })
    }
}

impl Settlement {
    /// Reports to the executor that the transaction is committed.
    pub(crate) fn committed(self) {
        // The executor may have stored the outcome meanwhile.
        let _sent = self.stored.send(self.state);
    }
}
