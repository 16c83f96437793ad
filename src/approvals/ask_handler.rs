//! Asking the handler of this process about the calls that a step holds.
//!
//! They are stored as pending, and that is told. The handler is asked about each in a task of its own, with no transaction
//! open; its word goes through the one function that decides. Meanwhile others decide too, and whoever is first wins.

use super::handlers::{ApprovalRequest, HandlerAnswer};
use super::{Approvals, DecideError, Decider, DecisionRequest, Scope};
use crate::agent::POLL_INTERVAL;
use crate::domain::Principal;
use crate::domain::call::{State, ToolCall, without_nul};
use crate::domain::decision::{Choice, Remember, Surface, Verdict};
use crate::domain::id::ToolCallId;
use crate::store::{Lease, StoreError};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Why a call is cancelled about which the handler has not answered in time.
const TIMEOUT: &str = "timeout";

impl Approvals {
    /// Whether there is a handler that may answer.
    pub(crate) fn has_handler(&self) -> bool {
        self.handler.asks()
    }

    /// Asks the handler about these calls of a turn's last step, for as long as whoever waits for it does. The calls as they
    /// stand once all that is going to be answered here is, and what was approved has ended.
    pub(crate) async fn ask_handler(
        &self,
        lease: Arc<Lease>,
        held: Vec<ToolCall>,
    ) -> Result<Vec<ToolCall>, StoreError> {
        let given_up = CancellationToken::new();
        // Who asks looks into the database, and that is not dropped half-way.
        let _until_dropped = given_up.clone().drop_guard();
        let (approvals, as_held) = (self.clone(), held.clone());
        let asking = async move { approvals.await_decisions(&lease, held, &given_up).await };
        match self.tasks().spawn(asking).await {
            Ok(current) => current,
            // They are left to the routes.
            Err(_broken) => {
                tracing::error!("asking about held calls broke");
                Ok(as_held)
            }
        }
    }

    async fn await_decisions(
        &self,
        lease: &Arc<Lease>,
        held: Vec<ToolCall>,
        given_up: &CancellationToken,
    ) -> Result<Vec<ToolCall>, StoreError> {
        let mut wake = self.wake_signal();
        let message = lease.run.assistant_message_id;
        let mut questions = Vec::new();
        let mut answers = FuturesUnordered::new();
        for call in held {
            if !matches!(call.state, State::Pending) {
                continue;
            }
            let (id, over) = (call.id, given_up.child_token());
            questions.push((id, over.clone()));
            let (approvals, lease) = (self.clone(), lease.clone());
            let span = tracing::error_span!("handler", tool_call_id = %id);
            answers.push(self.tasks().spawn(
                async move { approvals.ask_handler_about(&lease, &call, &over).await }.instrument(span),
            ));
        }
        // As long as a tool may take, and before that, where who should have begun it went away, somebody else to begin.
        let limit = self.gate().longest().saturating_add(self.approval.lease);
        let mut until = None;
        loop {
            let read = self.store.read().await?;
            let current = read.held_calls(message).await?;
            drop(read);
            for (id, over) in &questions {
                if !current.iter().any(|call| call.id == *id && matches!(call.state, State::Pending)) {
                    over.cancel();
                }
            }
            // What a child does may take days, and wait for a person itself.
            let under_way = |call: &ToolCall| {
                call.end().is_none() && !call.is_delegated() && !matches!(call.state, State::Pending)
            };
            let asked = !answers.is_empty();
            let leaves = given_up.is_cancelled() || self.tasks().is_stopping();
            if !asked && (leaves || !current.iter().any(under_way)) {
                return Ok(current);
            }
            if leaves {
                given_up.cancel();
            }
            if !asked && until.is_none() {
                until = Some(Instant::now() + limit);
            }
            let limit_reached = async {
                match until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(_answered) = answers.next() => {}
                // The sender lives as long as `self`; an error would only mean looking again sooner.
                _looked = timeout(POLL_INTERVAL, wake.changed()) => {}
                () = self.tasks().stopping(), if !leaves => {}
                () = given_up.cancelled(), if !leaves => {}
                () = limit_reached => return Ok(current),
            }
        }
    }

    /// Asks about one call, unless that is over first, and does as it is told.
    async fn ask_handler_about(&self, lease: &Lease, call: &ToolCall, over: &CancellationToken) {
        let request = ApprovalRequest::of(call, &lease.thread, &lease.run);
        let handler = &self.handler;
        let asked = AssertUnwindSafe(async { handler.ask(request).await }).catch_unwind();
        let answer = tokio::select! {
            // What has been decided is not decided otherwise.
            biased;
            () = over.cancelled() => return,
            answer = timeout(self.approval.handler_timeout, asked) => match answer {
                Ok(Ok(Ok(answer))) => answer,
                Ok(Ok(Err(error))) => {
                    tracing::warn!(%error, "the approval handler failed; the call is left to the routes");
                    HandlerAnswer::Deferred
                }
                Ok(Err(_panic)) => {
                    tracing::error!("the approval handler panicked; the call is left to the routes");
                    HandlerAnswer::Deferred
                }
                Err(_elapsed) => HandlerAnswer::Cancelled { reason: Some(TIMEOUT.to_owned()) },
            },
        };
        let (answer, remember) = match answer {
            HandlerAnswer::Approved { inputs, remember } => (Choice::Approve { inputs }, remember),
            HandlerAnswer::Denied { reason } => (Choice::Reject { reason: as_stored(reason) }, None),
            HandlerAnswer::Cancelled { reason } => {
                if let Err(error) = self.withdraw(lease, call.id, as_stored(reason)).await {
                    tracing::warn!(%error, "a call could not be cancelled; it is left to the routes");
                }
                return;
            }
            HandlerAnswer::Deferred => return,
        };
        match self.decide_for_handler(lease, call.id, answer, remember).await {
            // Somebody else was faster, or time was.
            Ok(()) | Err(DecideError::Closed(_)) => {}
            Err(DecideError::InvalidInputs(errors)) => {
                let places: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
                tracing::warn!(
                    ?places,
                    "the approval handler's inputs do not fit; the call is left to the routes"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "the approval handler's word was not taken; the call is left to the routes");
            }
        }
    }

    async fn decide_for_handler(
        &self,
        lease: &Lease,
        tool_call_id: ToolCallId,
        answer: Choice,
        remember: Option<Remember>,
    ) -> Result<(), DecideError> {
        let requester = requester(lease);
        let actor = self.handler_actor();
        let request = DecisionRequest {
            tool_call_id,
            choice: answer,
            input_hash: None,
            surface: Surface::Handler,
            remember,
            scope: Scope::Run(lease.run.id),
            // The turn goes on by itself. If it cannot, no client knows that it was the last.
            server_resumes: true,
        };
        let by = Decider::Handler { actor: &actor, requester: &requester };
        // Large, and it would make the task of every question as large.
        Box::pin(self.decide(by, request)).await?;
        Ok(())
    }

    /// Withdraws a call that waits still.
    async fn withdraw(
        &self,
        lease: &Lease,
        id: ToolCallId,
        reason: Option<String>,
    ) -> Result<(), StoreError> {
        let (thread, requester) = (&lease.thread, requester(lease));
        let write = self.store.urgent_write().await?;
        write.lock_thread(thread).await?;
        let waits = |call: &ToolCall| call.held && matches!(call.state, State::Pending);
        let found = write.call(&requester, id).await?;
        let Some((call, _)) = found.filter(|(call, _)| waits(call)) else { return Ok(()) };
        let now = write.now();
        if call.expires_at.is_some_and(|at| at <= now) {
            write.expire(thread, &call).await?;
            write.commit().await?;
        } else {
            let actor = self.handler_actor();
            if write.withdraw(thread, &call, &actor, Surface::Handler, reason).await? {
                // Who went on would go on behind this too.
                write.set_server_resumes(thread, call.run_id, true).await?;
                write.commit().await?;
                let (verdict, metrics) = (Verdict::Cancel.as_str(), &self.executor.metrics);
                metrics.decided(verdict, Surface::Handler.as_str(), "decided");
                metrics.hold_ended(verdict, now.since(call.created_at));
            }
        }
        self.wake_waiters();
        Ok(())
    }

    /// The handler, as decisions and events name it.
    fn handler_actor(&self) -> String {
        super::handlers::actor(self.handler.as_ref())
    }
}

/// On whose behalf a turn runs, with the roles that the policy judges it by.
fn requester(lease: &Lease) -> Principal {
    let (tenant_id, user_id) = (lease.thread.tenant_id.clone(), lease.thread.user_id.clone());
    Principal { tenant_id, user_id, roles: lease.run.options.roles.clone() }
}

/// No text column of Postgres takes U+0000.
fn as_stored(reason: Option<String>) -> Option<String> {
    reason.map(|reason| without_nul(&reason))
}
