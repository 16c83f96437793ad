//! Execution of approved calls: claim, run, settle, in a task that outlives its request.

use super::Approvals;
use crate::agent::{Wait, WakeSignal, persist};
use crate::domain::Principal;
use crate::domain::call::{State, ToolCall, input_hash};
use crate::domain::input::Input;
use crate::domain::permit::Permit;
use crate::store::{Again, Claimed, Read, StoreError, Thread};
use crate::tools::Registered;
use crate::tools::gate::{PolicyContext, Recheck};

impl Approvals {
    /// Starts to run an approved call, unless it is claimed already or this process must not run it.
    pub(super) fn execute(&self, thread: &Thread, call: &ToolCall) {
        let (approvals, thread, call) = (self.clone(), thread.clone(), call.clone());
        self.tasks().spawn(async move { approvals.claim_and_run(&thread, &call).await });
    }

    pub(super) async fn claim_and_run(&self, thread: &Thread, call: &ToolCall) {
        match self.claim(thread, call).await {
            Ok(Some(permit)) => self.run(permit).await,
            Ok(None) => {}
            Err(error) => tracing::warn!(tool_call_id = %call.id, %error, "could not claim a call"),
        }
        // Waiters also see a claim by another process.
        self.wake_waiters();
    }

    /// Claims an approved call to run it. Returns `None` if the call is claimed already, or if another
    /// process has to run it.
    pub(super) async fn claim(&self, thread: &Thread, call: &ToolCall) -> Result<Option<Permit>, StoreError> {
        let claimed = self.take(thread, call).await?;
        self.permit(thread, call, claimed).await
    }

    /// Claims the call in the database, unless another process has to run it.
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

    /// Checks a call against the current policy, on behalf of the user that the call would run for.
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

    /// Returns the permit if the call was claimed. If the database did not report the result, looks it up for
    /// up to one lease. If the lookup fails, the call is not run.
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

    /// Wakes the waiters of this process after a change of a call.
    pub(super) fn wake_waiters(&self) {
        self.executor.wake.send();
    }

    pub(super) fn wake_signal(&self) -> WakeSignal {
        self.executor.wake.signal()
    }

    /// Waits until a call ends, in whichever process, at most `approval.wait`. Returns the call as it is
    /// then.
    pub(super) async fn outcome(
        &self,
        principal: &Principal,
        mut call: ToolCall,
    ) -> Result<ToolCall, StoreError> {
        self.await_ends(principal, &mut [&mut call], is_open).await?;
        Ok(call)
    }

    /// Waits until `is_under_way` is false for all calls, at most `approval.wait`, and updates them. One read
    /// covers all calls, because there are few connections for urgent work.
    pub(super) async fn await_ends(
        &self,
        principal: &Principal,
        calls: &mut [&mut ToolCall],
        is_under_way: fn(&ToolCall) -> bool,
    ) -> Result<(), StoreError> {
        let mut wait = Wait::until(self.tasks().wait_limit(self.approval.wait));
        let mut wake = self.wake_signal();
        while calls.iter().any(|call| is_under_way(call)) {
            // Checked before the read. A stopping process does not begin a call, and a wait for another
            // process to begin it would delay the exit.
            let begins = !self.tasks().is_stopping();
            let read = self.store.urgent_read().await?;
            for call in calls.iter_mut().filter(|call| is_under_way(call)) {
                // After the deletion of its thread a call is not visible, but this principal has decided it.
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
            if wait.is_last_look() || !calls.iter().any(|call| waits(call)) {
                return Ok(());
            }
            wait.for_next_look(wake.woken()).await;
        }
        Ok(())
    }
}

/// Whether the tool of this process is the tool of the decision. After a deploy the tool may differ, and may
/// give the same inputs another meaning. A process with the old tool may still claim the call until the start
/// deadline.
fn is_as_decided(tool: &Registered, call: &ToolCall) -> bool {
    let here = input_hash(&call.name, call.effective_input(), &tool.schema_hash);
    call.decision.as_ref().is_some_and(|decision| decision.input_hash == here)
}

/// Whether the call is decided and has not ended.
fn is_open(call: &ToolCall) -> bool {
    call.validated().is_some() && call.end().is_none()
}

/// Whether the call is open and not delegated. A delegated call may take days, and its child may itself wait
/// for approvals.
pub(super) fn is_under_way(call: &ToolCall) -> bool {
    is_open(call) && !call.is_delegated()
}
