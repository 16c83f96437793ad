//! Executing an approved call: claim, run, settle, in a task that nobody's going away ends.

use super::Approvals;
use crate::domain::Principal;
use crate::domain::call::{State, ToolCall};
use crate::store::{StoreError, Thread};
use std::time::Duration;

/// How often somebody who waits looks at what another process may have settled.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Approvals {
    /// Begins to run an approved call, unless somebody else has.
    pub(super) fn execute(&self, thread: &Thread, call: &ToolCall) {
        // A process that has the tool, and stays, may still come until the start deadline.
        if self.gate().registry().get(&call.name).is_none() || self.tasks().is_stopping() {
            return;
        }
        let (approvals, thread, call) = (self.clone(), thread.clone(), call.clone());
        self.tasks().spawn(async move {
            if let Err(error) = approvals.claim_and_run(&thread, &call).await {
                tracing::error!(tool_call_id = %call.id, %error, "an approved call could not be run or settled");
            }
            approvals.tell_settled();
        });
    }

    async fn claim_and_run(&self, thread: &Thread, call: &ToolCall) -> Result<(), StoreError> {
        let write = self.store.urgent_write().await?;
        if let Some(permit) = write.claim(thread, call, &self.owner, self.times.lease).await? {
            self.executor.run(permit).await?;
        }
        Ok(())
    }

    /// Has those of this process who wait for a call's end look again.
    pub(super) fn tell_settled(&self) {
        self.settled.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits for a call's end, at most `wait`; then the call as it is.
    pub(crate) async fn outcome(
        &self,
        principal: &Principal,
        mut call: ToolCall,
    ) -> Result<ToolCall, StoreError> {
        let patience = self.tasks().patience(self.times.wait);
        tokio::pin!(patience);
        let mut settled = self.settled.subscribe();
        let mut last_look = false;
        loop {
            if call.validated().is_none() || call.end().is_some() {
                return Ok(call);
            }
            let read = self.store.read().await?;
            if let Some((now, _)) = read.call(principal, call.id).await? {
                call = now;
            }
            drop(read);
            // A process that leaves begins nothing; who waits here for another to begin would keep it.
            let unbegun = matches!(call.state, State::Approved(_)) && self.tasks().is_stopping();
            if call.end().is_some() || last_look || unbegun {
                return Ok(call);
            }
            tokio::select! {
                // The sender lives as long as `self`; an error would only mean looking again sooner.
                _looked = tokio::time::timeout(LOOK_AGAIN, settled.changed()) => {}
                () = &mut patience => last_look = true,
            }
        }
    }
}
