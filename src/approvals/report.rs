//! Reports: outcomes from outside of the servers. The services that own calls report them here, and workers by
//! settling their calls (`workers`).
//!
//! # One outcome that comes later
//!
//! 1. An HTTP tool sends its `callback_url` with the call. After a 202 it returns `ToolError::accepted`, and
//!    `Executor::hand_over` calls `Write::hand_over` of the store: `result_deadline` in place of the lease. The call
//!    has an owner now, and no process waits for it.
//! 2. A report passes `Reporter::of` of `http` in place of the authentication: the HMAC of the URL, before the body is
//!    read. The route verifies the signature of the body. Neither asks the database.
//! 3. [`Approvals::report`] settles the execution that the URL names, with `Write::settle` like every outcome. If the
//!    call had an owner, its run is marked `server_resumes`, and the resumer resumes it.
//! 4. `Write::end_unreported` interrupts a call after its deadline. A later report still settles it.
//! 5. If an MCP server answers with a task, its tool returns the same error with a `RemoteWork`, and `hand_over` stores
//!    it. `Executor::keep_polling` polls it through the trait `RemoteServer`, which `mcp` implements, under a lease of
//!    its own (`Write::renew_polls`), and settles the call with `Write::settle_polled`. The sweeper gives work that no
//!    process polls to this process (`Write::take_polls`), if it is connected to the server. Questions of a task are
//!    requests with a key (`InputRequests::send_once`): each process that polls finds the same row.
//! 6. If an MCP server asks for input with a state, the `RemoteWork` has a `Round` in place of a task.
//!    `Executor::play_round` asks its questions, removes the round from the row (`Write::take_round`), sends the call
//!    again, and stores the next round or task (`Write::store_next`). A row without both belongs to a process that sent
//!    the call again. If its polls end, the next process interrupts the call.

use super::{Approvals, Denied, has_denied};
use crate::agent::Work;
use holdpoint_core::call::{Execution, Outcome, State, StateKind};
use holdpoint_core::id::{ExecId, ToolCallId};
use holdpoint_core::json::canonical::same;
use holdpoint_store::{LockedCall, SettleOutcome};
use serde_json::Value;

/// The outcome of an execution, in the words of the service or the worker that knows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Report {
    /// The effect happened, with this output.
    Succeeded(Value),
    /// The effect did not happen and will not, for this reason.
    Failed(String),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported {
    /// The state of the call now.
    pub(crate) state: StateKind,
    /// Whether an earlier request reported the same.
    pub(crate) replayed: bool,
}

/// The reason why a report is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Another execution holds the call, or will.
    #[error("the call has started again, or is about to")]
    Stale(StateKind),
    /// The call has another outcome.
    #[error("the call has another outcome")]
    Settled(StateKind),
}

has_denied!(ReportError);

impl Approvals {
    /// Settles an execution of a call of this tool with the outcome that its service reports. A report may come
    /// before the service has accepted the call, and after the outcome counts as unknown.
    pub(crate) async fn report(
        &self,
        tool: &str,
        id: ToolCallId,
        execution: ExecId,
        report: Report,
    ) -> Result<Reported, ReportError> {
        let write = self.store.urgent_write().await?;
        let locked = write.lock_call(id).await?.filter(|locked| locked.call.name == tool);
        let Some(LockedCall { call, thread, .. }) = locked else { return Err(Denied::NotFound.into()) };
        let execution = call.execution().filter(|own| own.id == execution);
        let execution = execution.ok_or_else(|| ReportError::Stale(call.state.kind()))?;
        let outcome = self.reported_outcome(report, execution);
        let result = self.gate().result_text(&outcome, call.edit().as_ref());
        let deadline = self.times.start_deadline;
        let SettleOutcome::Ended(state) =
            write.settle(id, execution, &outcome, result.clone(), deadline).await?
        else {
            return unsettled(&call.state, &outcome, &result);
        };
        if call.is_delegated() {
            // No turn and no client waits for the outcome.
            write.set_server_resumes(&thread, call.run_id).await?;
        }
        write.commit().await?;
        tracing::info!(tool_call_id = %id, "the service of a tool reported an outcome");
        // The request of the execution may still be open in this process.
        self.executor.heartbeats.renew_now(Work::Call(id));
        self.wake_waiters_in(thread.id);
        Ok(Reported { state: state.kind(), replayed: false })
    }

    /// Returns the outcome that a report about this execution gives to the call.
    pub(super) fn reported_outcome(&self, report: Report, execution: Execution) -> Outcome {
        let outcome = match report {
            Report::Succeeded(output) => self.gate().succeeded(output),
            Report::Failed(why) => Outcome::Failed(why),
        };
        outcome.of_attempt(execution.attempt)
    }
}

/// Answers a report that settles nothing, because the call has this state.
fn unsettled(state: &State, outcome: &Outcome, result: &str) -> Result<Reported, ReportError> {
    match (state, outcome) {
        _ if is_repeat(state, outcome, result) => Ok(Reported { state: state.kind(), replayed: true }),
        // The store keeps no outcome of an erased call.
        (State::Interrupted(..), Outcome::Succeeded(_) | Outcome::Failed(_)) => Err(Denied::NotFound.into()),
        _ => Err(ReportError::Settled(state.kind())),
    }
}

/// Whether the call has this state because the same outcome of the execution was reported before. `result` is the
/// text of the outcome for the model.
pub(super) fn is_repeat(state: &State, outcome: &Outcome, result: &str) -> bool {
    match (state, outcome) {
        (State::Succeeded(_, _, output, _), Outcome::Succeeded(reported)) => {
            same(output, reported.as_value())
        }
        (State::Failed(_, Some(_), end), Outcome::Failed(_))
        | (State::Interrupted(_, _, end), Outcome::FailedAgain(_)) => end.result == result,
        (State::Interrupted(..) | State::Approved(_), Outcome::Lost) => true,
        _ => false,
    }
}
