//! Planted bugs of the approvals, for the torture run.

use super::Approvals;
use crate::domain::call::ToolCall;
use crate::domain::clock::Timestamp;
use crate::domain::id::ToolCallId;
use crate::faults::{self, Bug};
use crate::store::{StoreError, Thread};

/// [`Bug::DecideAnyState`]: whether a decided call is decided again.
pub(super) fn decides_anew(call: &ToolCall, now: Timestamp) -> bool {
    faults::has(Bug::DecideAnyState) && call.expires_at.is_some_and(|at| at > now)
}

impl Approvals {
    /// [`Bug::ClaimAfterTool`]: runs the tool first, then claims the call.
    pub(super) async fn run_then_claim(&self, thread: &Thread, call: &ToolCall) {
        if let Err(error) = self.ran_then_claimed(thread, call).await {
            tracing::warn!(tool_call_id = %call.id, %error, "could not claim a call that ran");
        }
        self.wake_waiters();
    }

    async fn ran_then_claimed(&self, thread: &Thread, call: &ToolCall) -> Result<(), StoreError> {
        let unclaimed = self.store.urgent_read().await?.permit_without_claim(thread, call);
        let outcome = self.gate().run(unclaimed).await;
        if let Some(permit) = self.claim(thread, call).await? {
            self.executor.settle_what_ran(&permit, &outcome).await?;
        }
        Ok(())
    }

    /// [`Bug::ReapById`]: reaps a silent call, whatever its state is now.
    pub(super) async fn reap_by_id(&self, id: ToolCallId) -> Result<(), StoreError> {
        let write = self.store.write().await?;
        write.reap_by_id(id).await?;
        write.commit().await
    }
}
