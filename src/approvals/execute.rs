//! Executing an approved call: claim, run, settle, in a task that nobody's going away ends.

use super::Approvals;
use crate::agent::execution::run_and_settle;
use crate::domain::Principal;
use crate::domain::call::ToolCall;
use crate::store::{StoreError, Thread};
use std::time::Duration;
use tokio::time::Instant;

/// How often somebody who waits looks at what another process may have settled.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

impl Approvals {
    /// Begins to run an approved call, unless somebody else has.
    pub(super) fn execute(&self, thread: &Thread, call: &ToolCall) {
        // A process that has the tool may still come, until the start deadline.
        if self.gate.registry().get(&call.name).is_none() {
            return;
        }
        let (approvals, thread, call) = (self.clone(), thread.clone(), call.clone());
        self.tasks.spawn(async move {
            if let Err(error) = approvals.claim_and_run(&thread, &call).await {
                tracing::error!(tool_call_id = %call.id, %error, "an approved call could not be run or settled");
            }
            approvals.settled.send_modify(|count| *count = count.wrapping_add(1));
        });
    }

    async fn claim_and_run(&self, thread: &Thread, call: &ToolCall) -> Result<(), StoreError> {
        let write = self.store.write().await?;
        if let Some(permit) = write.claim(thread, call, &self.owner, self.times.lease).await? {
            run_and_settle(&self.store, &self.gate, permit, self.times.lease).await?;
        }
        Ok(())
    }

    /// Waits for a call's end, at most `wait`; then the call as it is.
    pub(crate) async fn outcome(
        &self,
        principal: &Principal,
        mut call: ToolCall,
    ) -> Result<ToolCall, StoreError> {
        let deadline = Instant::now() + self.times.wait;
        let mut settled = self.settled.subscribe();
        loop {
            if call.validated().is_none() || call.end().is_some() {
                return Ok(call);
            }
            let read = self.store.read().await?;
            if let Some((now, _)) = read.call(principal, call.id).await? {
                call = now;
            }
            drop(read);
            let now = Instant::now();
            if call.end().is_some() || now >= deadline {
                return Ok(call);
            }
            let look_again = deadline.min(now + LOOK_AGAIN);
            // The sender lives as long as `self`; an error would only mean looking again sooner.
            let _looked = tokio::time::timeout_at(look_again, settled.changed()).await;
        }
    }
}
