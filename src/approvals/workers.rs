//! Workers: programs outside of the servers that execute the calls of worker tools. A worker claims an approved
//! call over HTTP and gets a permit token. With the token it renews its lease and settles the call.
//!
//! The claim, its checks and the settlement are those of the server's own tools. No process of a server executes
//! the call.
//!
//! # One call of a worker
//!
//! 1. The call of a worker tool (`Does::Worker`, `[[worker_tools]]`) is judged, held and decided like every call. The
//!    row records that (`by_worker`), so no process claims the call, also after a change of the tools. A cleared call
//!    is inserted as `approved`, and its turn ends as `waiting`.
//! 2. [`Approvals::claim_for_worker`] looks for approved calls of the tenant with one statement, and claims the oldest
//!    with `Approvals::claim_for`, as a process claims its own, over the connections of chats. It waits in the queue of
//!    `claim_queue`. [`Approvals::run_claims`] wakes one claim there for each call of `Store::approved_signal`, and one
//!    for each tool in a second. If the client disconnects, its claim claims nothing.
//! 3. The claim stores the hash of the permit token beside the execution id. A renewal and a settlement lock the call
//!    with one statement that requires this hash and the tenant of the worker (`Write::lock_permitted`). The settlement
//!    is that of the server's own tools (`Write::settle_row`), late outcomes included.
//! 4. The sweeper reaps the execution after its lease. The recovery at a start on SQLite leaves it alone, because a
//!    worker does not stop with its server.
//! 5. The end of a call that was never held marks its run `server_resumes` (`Write::move_row`, `Write::closed`).

use super::execute::ClaimResult;
use super::report::{Report, Reported, is_repeat};
use super::{Approvals, Denied, Right, has_denied};
use crate::config::{Auth, AuthMode};
use holdpoint_core::Principal;
use holdpoint_core::call::{Outcome, State, StateKind};
use holdpoint_core::card::progress::Progress;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::json::hex::hex;
use holdpoint_store::permit::Permit;
use holdpoint_store::{ApprovedCall, Claimant, SettleOutcome};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often a waiting claim looks for the calls that other processes approved.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The roles that may claim.
#[derive(Debug, Clone)]
pub(super) struct Workers {
    /// The roles of workers. `None` on a server without authentication, where the one user may claim.
    roles: Option<Vec<String>>,
}

impl Workers {
    pub(super) fn new(auth: &Auth) -> Self {
        let roles = (auth.mode != AuthMode::None).then(|| auth.worker_roles.clone());
        Self { roles }
    }

    fn check(&self, principal: &Principal) -> Result<(), Denied> {
        let is_worker = self.roles.as_ref().is_none_or(|roles| principal.has_one_of(roles));
        is_worker.then_some(()).ok_or(Denied::Forbidden(Right::ExecuteCalls))
    }
}

/// A claimed call on its way to a worker.
pub(crate) struct WorkerClaim {
    pub(crate) permit: Permit,
    /// The token that proves that its holder has the execution. The database has only its hash.
    pub(crate) token: String,
    pub(crate) lease_until: Timestamp,
    /// How long the lease is.
    pub(crate) lease: Duration,
}

impl fmt::Debug for WorkerClaim {
    /// Leaves out the token, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerClaim").field("permit", &self.permit).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RenewedLease {
    pub(crate) lease_until: Timestamp,
    /// How long the lease is from now on.
    pub(crate) lease: Duration,
    /// Whether the worker is asked to stop. It settles the call with what is true then.
    pub(crate) cancel_requested: bool,
}

/// The reason why a worker gets an error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// No worker tool of this server has this name.
    #[error("there is no worker tool {0:?}")]
    UnknownTool(String),
    /// The execution is over, in the way that the state of the call shows.
    #[error("the execution is over")]
    Over(Box<State>),
    /// The system gives no random numbers for a token.
    #[error("there is no randomness for a permit token")]
    NoRandomness,
}

has_denied!(WorkerError);

impl Approvals {
    /// Hands an approved call of one of these tools to a worker. Waits for one at most `wait`, and no longer
    /// than the client: a call that no client receives would be lost.
    pub(crate) async fn claim_for_worker(
        &self,
        worker: &Principal,
        tools: &[String],
        wait: Duration,
        disconnected: &CancellationToken,
    ) -> Result<Option<WorkerClaim>, WorkerError> {
        self.workers.check(worker)?;
        if let Some(unknown) = tools.iter().find(|tool| self.worker_timeout(tool).is_none()) {
            return Err(WorkerError::UnknownTool(unknown.clone()));
        }
        let _waiting: Vec<_> = tools.iter().map(|tool| self.executor.metrics.claim_waits(tool)).collect();
        let limit = async {
            tokio::select! {
                () = self.tasks().wait_limit(wait) => {}
                () = self.tasks().stopping() => {}
                () = disconnected.cancelled() => {}
            }
        };
        tokio::pin!(limit);
        // In the queue before its first look, so that it misses no call. Each way out of here passes unused wakes on.
        let waiting = self.claims.wait(&worker.tenant_id, tools);
        let mut left_alone = HashSet::new();
        while !disconnected.is_cancelled() && !self.tasks().is_stopping() {
            let turn = self.claims.turn().await;
            waiting.looks();
            let found = Box::pin(self.claim_oldest(worker, tools, &mut left_alone)).await?;
            drop(turn);
            if let Some(claim) = &found {
                waiting.got(claim.permit.tool_call_id());
            } else {
                waiting.found_none();
            }
            if found.is_some() || wait.is_zero() {
                return Ok(found);
            }
            tokio::select! {
                biased;
                () = &mut limit => break,
                () = waiting.woken() => {}
            }
        }
        Ok(None)
    }

    /// Wakes waiting claims until the process stops: one for each call that this process approves, and one for each tool
    /// in a second, for the calls that other processes approve.
    pub(crate) async fn run_claims(self) {
        let mut approved = self.store.approved_signal();
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.tasks().stopping() => return,
                next = approved.next() => match next {
                    Some(ApprovedCall { tenant_id, tool, call }) => self.claims.wake(tenant_id, tool, call),
                    None => self.claims.wake_one_of_each(),
                },
                _ = looks.tick() => self.claims.wake_one_of_each(),
            }
        }
    }

    /// Claims the oldest call of these tools that may begin. Adds to `left_alone` the calls that stay approved
    /// and may not begin in this process. An earlier look has found these already.
    async fn claim_oldest(
        &self,
        worker: &Principal,
        tools: &[String],
        left_alone: &mut HashSet<ToolCallId>,
    ) -> Result<Option<WorkerClaim>, WorkerError> {
        let mut after = None;
        loop {
            let read = self.store.chat_read_once().await?;
            let found = read.calls_for_workers(&worker.tenant_id, tools, after).await?;
            drop(read);
            let Some((last, _)) = found.last() else { return Ok(None) };
            after = Some(*last);
            for (id, tool) in found {
                if left_alone.contains(&id) {
                    continue;
                }
                if let Some(claimed) = self.claim_one_for_worker(worker, id, &tool, left_alone).await? {
                    return Ok(Some(claimed));
                }
            }
        }
    }

    async fn claim_one_for_worker(
        &self,
        worker: &Principal,
        id: ToolCallId,
        tool: &str,
        left_alone: &mut HashSet<ToolCallId>,
    ) -> Result<Option<WorkerClaim>, WorkerError> {
        let gate = self.gate();
        let registered = gate.registry().get(tool);
        let Some((tool, timeout)) = registered.and_then(|tool| Some((tool, tool.worker_timeout()?))) else {
            return Ok(None);
        };
        let token = self.entropy.secret().ok_or(WorkerError::NoRandomness)?;
        let lease = self.times.lease.min(timeout);
        let (actor, permit_hash) = (worker.actor(), hash(&token));
        let by = Claimant::Worker { actor: &actor, permit_hash: &permit_hash };
        let claimed = match self.claim_for(&gate, id, tool, by, lease).await? {
            ClaimResult::Claimed(claimed) => claimed,
            ClaimResult::NotApproved => return Ok(None),
            ClaimResult::LeftAlone => {
                left_alone.insert(id);
                return Ok(None);
            }
        };
        let permit = self.permit(id, claimed).await?;
        Ok(permit.map(|permit| {
            let lease_until = permit.execution().started_at.plus(lease);
            WorkerClaim { permit, token, lease_until, lease }
        }))
    }

    /// Renews the lease of a worker's execution.
    pub(crate) async fn renew_for_worker(
        &self,
        worker: &Principal,
        id: ToolCallId,
        token: &str,
        progress: Option<&Progress>,
    ) -> Result<RenewedLease, WorkerError> {
        self.workers.check(worker)?;
        let write = self.store.urgent_write().await?;
        let permitted = write.lock_permitted(worker, id, &hash(token)).await?.ok_or(Denied::NotFound)?;
        let timeout = self.worker_timeout(&permitted.call.name).unwrap_or_else(|| self.gate().timeout());
        let Some(lease_until) = write.renew_permitted(&permitted, self.times.lease, timeout).await? else {
            return Err(WorkerError::Over(Box::new(permitted.call.state)));
        };
        if let Some(progress) = progress {
            write.report_permitted(&permitted, progress).await?;
        }
        let lease = lease_until.since(write.now());
        write.commit().await?;
        Ok(RenewedLease { lease_until, lease, cancel_requested: permitted.is_cancel_requested })
    }

    /// Settles a call with the report of its worker, or with `None` if the worker does not know the outcome. A report
    /// after the end of the lease settles the call like the late outcome of a server's own tool.
    pub(crate) async fn settle_for_worker(
        &self,
        worker: &Principal,
        id: ToolCallId,
        token: &str,
        report: Option<Report>,
    ) -> Result<Reported, WorkerError> {
        self.workers.check(worker)?;
        let write = self.store.urgent_write().await?;
        let permitted = write.lock_permitted(worker, id, &hash(token)).await?.ok_or(Denied::NotFound)?;
        let (call, execution) = (&permitted.call, permitted.execution);
        let outcome = match report {
            Some(report) => self.reported_outcome(report, execution),
            None => Outcome::Lost,
        };
        let result = self.gate().result_text(&outcome, call.edit().as_ref());
        let deadline = self.times.start_deadline;
        let settled = write.settle_permitted(&permitted, &outcome, result.clone(), deadline).await?;
        let state = match settled {
            SettleOutcome::Ended(state) => state.kind(),
            SettleOutcome::Again => StateKind::Approved,
            SettleOutcome::Nothing if is_repeat(&call.state, &outcome, &result) => {
                return Ok(Reported { state: call.state.kind(), replayed: true });
            }
            SettleOutcome::Nothing => return Err(WorkerError::Over(Box::new(permitted.call.state))),
        };
        let now = write.now();
        write.commit().await?;
        if matches!(call.state, State::Executing(..)) {
            self.executor.metrics.tool_ran(&call.name, now.since(execution.started_at));
        }
        self.wake_waiters_in(call.thread_id);
        Ok(Reported { state, replayed: false })
    }

    fn worker_timeout(&self, tool: &str) -> Option<Duration> {
        self.gate().registry().get(tool)?.worker_timeout()
    }
}

/// Returns the hash of a permit token. A token has 256 random bits, so that its hash reveals nothing of it.
fn hash(token: &str) -> String {
    hex(&Sha256::digest(token))
}
