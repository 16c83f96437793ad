//! Execution of approved calls: claim, run, settle, in a task that outlives its request.

use super::Approvals;
use crate::agent::{OutcomeOffer, Ran, UnsettledOutcome, Wait, WakeSignal, persist};
use crate::tools::Registered;
use crate::tools::gate::{Gate, PolicyContext, Recheck};
use holdpoint_core::call::{ExecutedBy, Execution, State, ToolCall};
use holdpoint_core::decision::Surface;
use holdpoint_core::grant::Grant;
use holdpoint_core::id::{ThreadId, ToolCallId};
use holdpoint_core::tool::input::Input;
use holdpoint_store::permit::Permit;
use holdpoint_store::{Claim, ClaimOutcome, Claimant, LockedCall, Repeatability, StoreError, Write};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) enum ClaimResult {
    /// The call is claimed.
    Claimed(ClaimOutcome),
    /// The call is not approved any more.
    NotApproved,
    /// The call stays approved, and this process may not begin it.
    LeftAlone,
}

/// An execution of this process.
#[derive(Debug)]
pub(crate) struct Running {
    ended: oneshot::Receiver<State>,
    /// Receives the outcome, if the decider may store it.
    unsettled: Option<oneshot::Receiver<UnsettledOutcome>>,
}

impl Running {
    /// Completes when the execution is over, and updates its call if the execution has ended it.
    pub(super) async fn ended(self, call: &mut ToolCall) {
        let Self { ended, unsettled } = self;
        drop(unsettled);
        if let Ok(state) = ended.await {
            call.state = state;
        }
    }

    /// Completes when the tool has returned and its outcome is ready to be stored, or when the execution is over, and
    /// updates its call then. Returns the outcome that is ready.
    pub(super) async fn returned(mut self, call: &mut ToolCall) -> Option<UnsettledOutcome> {
        if let Some(unsettled) = self.unsettled.take()
            && let Ok(unsettled) = unsettled.await
        {
            return Some(unsettled);
        }
        self.ended(call).await;
        None
    }
}

impl Approvals {
    /// Returns this process, if it claims an approved call with the approval.
    ///
    /// The call of a sub-agent is claimed later, by the task that creates the child run.
    pub(super) fn claims(&self, gate: &Gate, call: &ToolCall) -> Option<&str> {
        self.runnable(gate, call).filter(|tool| tool.executes()).map(|_| &*self.owner)
    }

    /// Commits the decision about a call. If the same commit claims the call, the result is the permit.
    pub(super) async fn commit_decided(
        &self,
        decided: Claim,
        locked: &mut LockedCall,
    ) -> Result<Option<Box<Permit>>, StoreError> {
        let call = &locked.call;
        let claim = match decided {
            Claim::Made(claim) => claim,
            Claim::Unclaimed(write) => {
                write.commit().await?;
                return Ok(None);
            }
        };
        let (execution, error) = match claim.commit().await {
            ClaimOutcome::Permitted(permit) => return Ok(Some(permit)),
            ClaimOutcome::Unknown(execution, error) => (execution, error),
        };
        if let Ok(Some(permit)) = self.find_claim(call.id, execution, &error).await {
            return Ok(Some(Box::new(permit)));
        }
        // The commit was not made, the call may not start any more, or the lookup failed.
        locked.call = self.find_decided(call).await.ok_or(error)?;
        Ok(None)
    }

    /// Returns a call as it is now, if this decision about it is in force.
    async fn find_decided(&self, call: &ToolCall) -> Option<ToolCall> {
        let stored = self.store.urgent_read().await.ok()?.any_call(call.id).await.ok()??;
        (stored.decision == call.decision).then_some(stored)
    }

    /// Starts to run a claimed call.
    fn begin(&self, thread: ThreadId, permit: Permit, surface: Surface) -> Running {
        let (ended_sender, ended) = oneshot::channel();
        // Only the stream of the client that decides resumes the run with the next transaction.
        let (offer, unsettled) = (surface == Surface::Stream).then(OutcomeOffer::new).unzip();
        let approvals = self.clone();
        self.tasks().spawn(async move {
            if let Some(state) = approvals.run(thread, permit, offer).await {
                // No decider may be waiting.
                let _sent = ended_sender.send(state);
            }
        });
        Running { ended, unsettled }
    }

    /// Starts the call of a committed decision, if it is approved and this process may run it. Returns the
    /// execution if the decision's commit claimed the call.
    pub(super) fn start(
        &self,
        call: &ToolCall,
        permit: Option<Box<Permit>>,
        surface: Surface,
    ) -> Option<Running> {
        if let Some(permit) = permit {
            return Some(self.begin(call.thread_id, *permit, surface));
        }
        if matches!(call.state, State::Approved(_)) && call.executed_by != ExecutedBy::Worker {
            self.execute(call);
        }
        None
    }

    /// Starts to claim and run an approved call, unless it is claimed already or this process must not run
    /// it.
    fn execute(&self, call: &ToolCall) {
        let (approvals, call) = (self.clone(), call.clone());
        self.tasks().spawn(async move { Box::pin(approvals.claim_and_run(&call)).await });
    }

    pub(super) async fn claim_and_run(&self, call: &ToolCall) {
        match self.claim(call).await {
            Ok(Some(permit)) => {
                self.run(call.thread_id, permit, None).await;
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(tool_call_id = %call.id, %error, "could not claim a call"),
        }
        // Waiters also see a claim by another process.
        self.wake_waiters_in(call.thread_id);
    }

    /// Claims an approved call to run it. Returns `None` if the call is claimed already, or if another
    /// process has to run it.
    pub(super) async fn claim(&self, call: &ToolCall) -> Result<Option<Permit>, StoreError> {
        match self.take(call).await? {
            Some(claimed) => self.permit(call.id, claimed).await,
            None => Ok(None),
        }
    }

    /// Claims the call in the database. Returns `None` if another process has claimed it or has to run it.
    pub(super) async fn take(&self, call: &ToolCall) -> Result<Option<ClaimOutcome>, StoreError> {
        let gate = self.gate();
        let Some(tool) = self.runnable(&gate, call) else { return Ok(None) };
        let by = Claimant::Process(&self.owner);
        Ok(match self.claim_for(&gate, call.id, tool, by, self.times.lease).await? {
            ClaimResult::Claimed(claimed) => Some(claimed),
            ClaimResult::NotApproved | ClaimResult::LeftAlone => None,
        })
    }

    /// Claims an approved call in the database for a claimant that has this tool.
    pub(super) async fn claim_for(
        &self,
        gate: &Gate,
        call: ToolCallId,
        tool: &Registered,
        claimant: Claimant<'_>,
        lease: Duration,
    ) -> Result<ClaimResult, StoreError> {
        let write = match &claimant {
            // A worker that waits longer for its call delays no decision.
            Claimant::Worker { .. } => self.store.write().await?,
            Claimant::Process(..) => self.store.urgent_write().await?,
        };
        let locked = write.lock_call(call).await?;
        let Some(locked) = locked.filter(|locked| matches!(locked.call.state, State::Approved(_))) else {
            return Ok(ClaimResult::NotApproved);
        };
        if !is_as_decided(tool, &locked.call) {
            return Ok(ClaimResult::LeftAlone);
        }
        match self.recheck(gate, &write, &locked, tool, locked.call.effective_input()).await? {
            Recheck::Yes => {}
            Recheck::NotUnasked => return Ok(ClaimResult::LeftAlone),
            Recheck::Never { why, .. } => {
                tracing::info!(tool_call_id = %call, %why, "the policy forbids an approved call");
                write.block(&locked.thread, &locked.call, &why).await?;
                write.commit().await?;
                self.wake_waiters_in(locked.thread.id);
                return Ok(ClaimResult::NotApproved);
            }
        }
        Ok(match write.claim(&locked, claimant, lease, again(tool)).await? {
            Claim::Made(claim) => ClaimResult::Claimed(claim.commit().await),
            Claim::Unclaimed(_) => ClaimResult::LeftAlone,
        })
    }

    /// Returns the tool with which this process may run an approved call.
    fn runnable<'a>(&self, gate: &'a Gate, call: &ToolCall) -> Option<&'a Registered> {
        let tool = gate.registry().get(&call.name).filter(|tool| is_as_decided(tool, call));
        let runs_here =
            |tool: &&Registered| call.executed_by != ExecutedBy::Worker && tool.worker_timeout().is_none();
        tool.map(|tool| &**tool).filter(runs_here).filter(|_| !self.tasks().is_stopping())
    }

    /// Checks a call against the current policy, on behalf of the user that the call would run for. The
    /// policy and the grants of the session stay as they are until the transaction ends.
    pub(super) async fn recheck(
        &self,
        gate: &Gate,
        write: &Write,
        locked: &LockedCall,
        tool: &Registered,
        input: &Input,
    ) -> Result<Recheck, StoreError> {
        let (session, requester) = (write.hold_session(&locked.thread).await?, locked.thread.actor());
        let judge = |grants: &[Grant]| {
            let context =
                PolicyContext { roles: &locked.roles, session: &session, requester: &requester, grants };
            gate.recheck(tool, input, locked.call.held, context)
        };
        match judge(&[]) {
            Recheck::Yes => Ok(Recheck::Yes),
            // A grant only lets more calls run.
            Recheck::NotUnasked | Recheck::Never { .. } => {
                let (about, as_of) = ([locked.call.name.as_str()], gate.remembering().as_of(write.now()));
                let mut grants = write.grants_about(&locked.thread, about, as_of).await?;
                if let Some(own) = write.grant_of(&locked.call, &locked.thread, as_of).await? {
                    // The call is one of the counted uses.
                    grants.push(Grant { uses: None, ..own });
                }
                Ok(judge(&grants))
            }
        }
    }

    pub(super) async fn permit(
        &self,
        call: ToolCallId,
        claimed: ClaimOutcome,
    ) -> Result<Option<Permit>, StoreError> {
        match claimed {
            ClaimOutcome::Permitted(permit) => Ok(Some(*permit)),
            ClaimOutcome::Unknown(execution, error) => self.find_claim(call, execution, &error).await,
        }
    }

    /// Looks up a claim that the database did not confirm, for up to one lease. If the lookup fails, the call
    /// is not run.
    async fn find_claim(
        &self,
        call: ToolCallId,
        execution: Execution,
        error: &StoreError,
    ) -> Result<Option<Permit>, StoreError> {
        tracing::warn!(tool_call_id = %call, %error, "whether a call was claimed is looked up");
        let lease = self.times.lease;
        let find = || async { self.store.urgent_write().await?.find_claim(call, execution, lease).await };
        Ok(persist(lease, find).await?.value)
    }

    /// Runs a claimed call of this thread. Returns the state in which the execution has ended the call.
    pub(super) async fn run(
        &self,
        thread: ThreadId,
        permit: Permit,
        offer: Option<OutcomeOffer>,
    ) -> Option<State> {
        let tool_call_id = permit.tool_call_id();
        let ended = match self.executor.run(permit, Arc::new(self.clone()), offer).await {
            Ok(Ran::Ended(state)) => Some(*state),
            Ok(Ran::Again | Ran::Delegated) => None,
            Err(error) => {
                tracing::error!(%tool_call_id, %error, "the outcome of a call could not be written");
                None
            }
        };
        self.wake_waiters_in(thread);
        ended
    }

    /// Wakes the waiters of this process after a change of a call in this thread.
    pub(super) fn wake_waiters_in(&self, thread: ThreadId) {
        self.executor.wake.send_in(thread);
    }

    /// Wakes all waiters of this process after a change of calls.
    pub(super) fn wake_waiters(&self) {
        self.executor.wake.send();
    }

    pub(super) fn wake_signal(&self) -> WakeSignal {
        self.executor.wake.signal()
    }

    /// Waits until a call ends, in whichever process, at most `approval.wait`. Returns the call as it is
    /// then.
    pub(super) async fn outcome(&self, mut call: ToolCall) -> Result<ToolCall, StoreError> {
        let limit = self.tasks().wait_limit(self.approval.wait);
        self.await_ends(&mut [&mut call], is_open, limit).await?;
        Ok(call)
    }

    /// Waits until `is_in_progress` is false for all calls, at most until the limit, and updates them. One read
    /// covers all calls, because there are few connections for urgent work.
    pub(super) async fn await_ends(
        &self,
        calls: &mut [&mut ToolCall],
        is_in_progress: fn(&ToolCall) -> bool,
        limit: impl Future<Output = ()>,
    ) -> Result<(), StoreError> {
        let mut wait = Wait::until(limit);
        let mut wake = self.wake_signal();
        while calls.iter().any(|call| is_in_progress(call)) {
            // Checked before the read. A stopping process does not begin a call, and a wait for another
            // process to begin it would delay the exit.
            let begins = !self.tasks().is_stopping();
            let mut open: Vec<&mut ToolCall> =
                calls.iter_mut().map(|call| &mut **call).filter(|call| is_in_progress(call)).collect();
            self.store.read_once().await?.update_decided(&mut open).await?;
            let waits = |call: &ToolCall| {
                is_in_progress(call) && (begins || !matches!(call.state, State::Approved(_)))
            };
            if wait.is_last_look() || !calls.iter().any(|call| waits(call)) {
                return Ok(());
            }
            wait.for_next_look(wake.woken_in(|thread| calls.iter().any(|call| call.thread_id == thread)))
                .await;
        }
        Ok(())
    }
}

/// Whether the call may run again with this tool.
fn again(tool: &Registered) -> Repeatability {
    if tool.spec.idempotent { Repeatability::Harmless } else { Repeatability::Never }
}

/// Whether the tool of this process is the tool of the decision. After a deploy the tool may differ, and may
/// give the same inputs another meaning. A process with the old tool may still claim the call until the start
/// deadline.
fn is_as_decided(tool: &Registered, call: &ToolCall) -> bool {
    let here = call.effective_hash(&tool.schema_hash);
    call.decision.as_ref().is_some_and(|decision| decision.input_hash == here)
}

/// Whether the call is decided and has not ended.
fn is_open(call: &ToolCall) -> bool {
    call.validated().is_some() && call.end().is_none()
}

/// Whether the call is open and not delegated. A delegated call may take days, and its child may itself wait
/// for approvals.
pub(super) fn is_in_progress(call: &ToolCall) -> bool {
    is_open(call) && !call.is_delegated()
}
