//! Executing an approved call: claim, run, settle, in a task that nobody's going away ends.

use super::Approvals;
use crate::agent::{POLL_INTERVAL, persist};
use crate::domain::Principal;
use crate::domain::call::{Input, State, ToolCall, input_hash};
use crate::domain::permit::Permit;
#[cfg(feature = "torture")]
use crate::faults::{self, Bug};
use crate::store::{Again, Claimed, Read, StoreError, Thread};
use crate::tools::Registered;
use crate::tools::gate::{PolicyContext, Recheck};
use tokio::sync::watch;

impl Approvals {
    /// Begins to run an approved call, unless somebody else has, or this process must not.
    pub(super) fn execute(&self, thread: &Thread, call: &ToolCall) {
        let (approvals, thread, call) = (self.clone(), thread.clone(), call.clone());
        self.tasks().spawn(async move { approvals.claim_and_run(&thread, &call).await });
    }

    pub(super) async fn claim_and_run(&self, thread: &Thread, call: &ToolCall) {
        #[cfg(feature = "torture")]
        if faults::has(Bug::ClaimAfterTool) {
            return Box::pin(self.run_then_claim(thread, call)).await;
        }
        match self.claim(thread, call).await {
            Ok(Some(permit)) => self.run(permit).await,
            Ok(None) => {}
            Err(error) => tracing::warn!(tool_call_id = %call.id, %error, "a call could not be claimed"),
        }
        // Whoever waits sees who else has begun.
        self.wake_waiters();
    }

    /// Takes an approved call to run it. `None` if somebody else has, or another process has to.
    pub(super) async fn claim(&self, thread: &Thread, call: &ToolCall) -> Result<Option<Permit>, StoreError> {
        let claimed = self.take(thread, call).await?;
        self.permit(thread, call, claimed).await
    }

    /// Asks the database for a call, unless another process has to.
    pub(super) async fn take(&self, thread: &Thread, call: &ToolCall) -> Result<Claimed, StoreError> {
        let tool = self.gate().registry().get(&call.name).filter(|tool| is_as_decided(tool, call));
        let Some(tool) = tool.filter(|_| !self.tasks().is_stopping()) else { return Ok(Claimed::Nothing) };
        let again = if tool.spec.idempotent { Again::Harmless } else { Again::Never };
        let write = self.store.urgent_write().await?;
        write.lock_thread(thread).await?;
        write.hold_session(thread).await?;
        match self.recheck(&write, thread, tool, call, call.effective_input()).await? {
            Recheck::Yes => {}
            Recheck::NotUnasked => return Ok(Claimed::Nothing),
            Recheck::Never(why) => {
                tracing::info!(tool_call_id = %call.id, %why, "the policy forbids an approved call");
                write.block(thread, call, &why).await?;
                write.commit().await?;
                return Ok(Claimed::Nothing);
            }
        }
        write.claim(thread, call, &self.owner, self.approval.lease, again).await
    }

    /// What the policy says of a call by now, on behalf of whom it would run.
    pub(super) async fn recheck(
        &self,
        read: &Read,
        thread: &Thread,
        tool: &Registered,
        call: &ToolCall,
        input: &Input,
    ) -> Result<Recheck, StoreError> {
        let (roles, session) = (read.roles_of(call.run_id).await?, read.session_policy(thread).await?);
        let process = self.gate().remembering().process.as_deref();
        let grants = read.grants_about(thread, [call.name.as_str()], process).await?;
        let context =
            PolicyContext { roles: &roles, session: &session, requester: &thread.actor(), grants: &grants };
        Ok(self.gate().recheck(tool, input, call.held, context))
    }

    /// The permit, if the call was claimed. Where the database did not say, that is looked up for the time of a lease;
    /// if it cannot be, the call is not run.
    pub(super) async fn permit(
        &self,
        thread: &Thread,
        call: &ToolCall,
        claimed: Claimed,
    ) -> Result<Option<Permit>, StoreError> {
        let lease = self.approval.lease;
        match claimed {
            Claimed::Taken(permit) => Ok(Some(*permit)),
            Claimed::Nothing => Ok(None),
            Claimed::Unknown(execution, error) => {
                tracing::warn!(tool_call_id = %call.id, %error, "whether a call was claimed is looked up");
                let find = || async {
                    self.store.urgent_write().await?.find_claim(thread, call.id, execution, lease).await
                };
                Ok(persist(lease, find).await?.value)
            }
        }
    }

    /// Runs a claimed call to its end.
    pub(super) async fn run(&self, permit: Permit) {
        let tool_call_id = permit.tool_call_id();
        if let Err(error) = self.executor.run(permit).await {
            tracing::error!(%tool_call_id, %error, "the outcome of a call could not be written");
        }
        self.wake_waiters();
    }

    /// Has those of this process who wait for a call's end look again.
    pub(crate) fn wake_waiters(&self) {
        self.wake.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// What changes with each call that this process settles.
    pub(crate) fn wake_signal(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    /// Waits for a call's end, whoever does it, at most `wait`; then the call as it is.
    pub(super) async fn outcome(
        &self,
        principal: &Principal,
        mut call: ToolCall,
    ) -> Result<ToolCall, StoreError> {
        self.await_ends(principal, &mut [&mut call], is_open).await?;
        Ok(call)
    }

    /// Waits until nothing of these calls is under way in this sense, at most `wait`; then they are as they are. One look
    /// is for all of them: the connections for what is urgent are few.
    pub(super) async fn await_ends(
        &self,
        principal: &Principal,
        calls: &mut [&mut ToolCall],
        is_under_way: fn(&ToolCall) -> bool,
    ) -> Result<(), StoreError> {
        let limit = self.tasks().wait_limit(self.approval.wait);
        tokio::pin!(limit);
        let mut wake = self.wake_signal();
        let mut is_last = false;
        while calls.iter().any(|call| is_under_way(call)) {
            // Asked before the look: what is not begun when the process is leaving is not begun here, and who waits for
            // another to begin would keep it.
            let begins = !self.tasks().is_stopping();
            let read = self.store.urgent_read().await?;
            for call in calls.iter_mut().filter(|call| is_under_way(call)) {
                // After the deletion of its thread a call is not visible; but this principal has decided it.
                let now = match self.visible_call(&read, principal, call.id).await? {
                    Some((now, _)) => Some(now),
                    None => read.any_call(call.id).await?,
                };
                if let Some(now) = now {
                    **call = now;
                }
            }
            drop(read);
            let waits =
                |call: &ToolCall| is_under_way(call) && (begins || !matches!(call.state, State::Approved(_)));
            if is_last || !calls.iter().any(|call| waits(call)) {
                return Ok(());
            }
            tokio::select! {
                // The sender lives as long as `self`; an error would only mean looking again sooner.
                _looked = tokio::time::timeout(POLL_INTERVAL, wake.changed()) => {}
                () = &mut limit => is_last = true,
            }
        }
        Ok(())
    }
}

/// Whether what this process would run is what was decided on. After a deploy it may have another tool, which takes
/// something else by the same inputs; a process that has the old one may still come, until the start deadline.
fn is_as_decided(tool: &Registered, call: &ToolCall) -> bool {
    let here = input_hash(&call.name, call.effective_input(), &tool.schema_hash);
    call.decision.as_ref().is_some_and(|decision| decision.input_hash == here)
}

/// Whether it was decided and has not ended.
fn is_open(call: &ToolCall) -> bool {
    call.validated().is_some() && call.end().is_none()
}

/// The same, for who decided it: what a child does may take days, and wait for a person itself.
pub(super) fn is_under_way(call: &ToolCall) -> bool {
    is_open(call) && !call.is_delegated()
}
