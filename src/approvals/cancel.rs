//! Cancellation of calls: a call that has not started is withdrawn; a running call is asked to stop.
//!
//! A request to stop changes nothing yet, so it is no event. The transition that follows is one.

use super::{Approvals, DecideError, Denied};
use crate::agent::Work;
use holdpoint_core::Principal;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::id::ToolCallId;
use holdpoint_store::CancelOutcome;

impl Approvals {
    /// Renews the leases of the calls that run in this process, which so check whether to end. Called after the
    /// commit of the cancel.
    pub(crate) fn renew_cancelled(&self, calls: Vec<ToolCallId>) {
        calls.into_iter().for_each(|call| self.executor.heartbeats.renew_now(Work::Call(call)));
        // The children of a call have to stop too.
        self.wake_waiters();
    }

    /// Cancels a call. Returns the call with its end, or after `approval.wait` without it. A tool in another
    /// process is asked to stop when that process next renews its lease.
    pub(crate) async fn cancel(
        &self,
        principal: &Principal,
        id: ToolCallId,
    ) -> Result<ToolCall, DecideError> {
        let write = self.store.urgent_write().await?;
        let (_, thread) = write.call(principal, id).await?.ok_or(Denied::NotFound)?;
        let thread = write.lock_thread(thread.id).await?;
        let (call, _) = write.call(principal, id).await?.ok_or(Denied::NotFound)?;
        let overdue = call.expires_at.is_some_and(|at| at <= write.now());
        let became = if matches!(call.state, State::Pending) && overdue {
            write.expire(&thread, &call, self.times.resume_on_expiry).await?;
            CancelOutcome::Ended
        } else {
            let became = write.cancel_call(&thread, &call, &principal.actor()).await?;
            if became == CancelOutcome::Withdrawn && call.held && self.times.resume_on_expiry {
                // No page has posted a decision, so none knows that the run can resume.
                write.person_resumes(&thread, call.run_id, true).await?;
            }
            became
        };
        let (call, _) = write.call(principal, id).await?.ok_or(Denied::NotFound)?;
        write.commit().await?;
        match became {
            CancelOutcome::Withdrawn => {
                // Waiters for the outcome see it now.
                self.wake_waiters();
                Ok(call)
            }
            CancelOutcome::Requested => {
                self.renew_cancelled(vec![id]);
                // An owner may take days.
                if call.result_deadline().is_some() { Ok(call) } else { Ok(self.outcome(call).await?) }
            }
            CancelOutcome::Ended if matches!(call.state, State::Cancelled(..)) => Ok(call),
            CancelOutcome::Ended => Err(DecideError::Closed(Box::new(call))),
        }
    }
}
