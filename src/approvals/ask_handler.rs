//! Asks the handler of this process about the held calls of a step.
//!
//! The calls are stored as pending and emitted first. A task of its own asks about each call, with no
//! transaction open. The answer goes through the same function as every decision. Other deciders may decide
//! meanwhile, and the first decision wins.

use super::handlers::{ApprovalRequest, HandlerAnswer, Opener};
use super::{Approvals, DecideError, Decider, DecisionRequest, Scope};
use crate::agent::Wait;
use futures::FutureExt;
use futures::future::join_all;
use holdpoint_core::Principal;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::decision::{Choice, Remember, Surface, Verdict};
use holdpoint_core::grant::GrantRequest;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::text::without_nul;
use holdpoint_store::{Lease, StoreError};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// The reason of the cancellation if the handler does not answer in time.
const TIMEOUT: &str = "timeout";

impl Approvals {
    /// Whether there is a handler that may answer.
    pub(crate) fn has_handler(&self) -> bool {
        self.handler.asks()
    }

    /// Asks the handler about these calls of a turn's last step, until the caller stops waiting. Returns the
    /// calls once every question and every approved call has ended. There is a time limit, and delegated
    /// calls are not awaited.
    pub(crate) async fn ask_handler(
        &self,
        lease: Arc<Lease>,
        held: Vec<ToolCall>,
    ) -> Result<Vec<ToolCall>, StoreError> {
        let given_up = CancellationToken::new();
        // The task reads the database, and database work must not be dropped midway.
        let _until_dropped = given_up.clone().drop_guard();
        let (approvals, as_held) = (self.clone(), held.clone());
        let asking = async move { approvals.await_decisions(&lease, held, &given_up).await };
        match self.tasks().spawn(asking).await {
            Ok(current) => current,
            // The calls stay pending for the routes.
            Err(_broken) => {
                tracing::error!("the task for held calls failed");
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
        let message = lease.run.assistant_message_id;
        // Before the first read, so that no change after that read is missed.
        let mut wake = self.wake_signal();
        let mut current = self.await_answers(lease, held, given_up).await?;
        // The longest run of a tool, plus one lease in which another process can begin the call after the
        // first process died.
        let limit = self.gate().longest().saturating_add(self.times.lease);
        let mut wait = Wait::until(async {
            tokio::select! {
                () = sleep(limit) => {}
                () = self.tasks().stopping() => {}
                () = given_up.cancelled() => {}
            }
        });
        while !wait.is_last_look() && current.iter().any(is_approved_and_open) {
            wait.for_next_look(wake.woken_in(|thread| thread == lease.thread.id)).await;
            current = self.store.read().await?.held_calls(message).await?;
        }
        Ok(current)
    }

    /// Asks about each pending call, and waits until all questions have ended. Returns the held calls as they
    /// are then. A question ends with its answer, with a decision by another decider, if the caller stops
    /// waiting, or if the process stops.
    async fn await_answers(
        &self,
        lease: &Arc<Lease>,
        held: Vec<ToolCall>,
        given_up: &CancellationToken,
    ) -> Result<Vec<ToolCall>, StoreError> {
        let mut wake = self.wake_signal();
        let mut questions = Vec::new();
        let mut answers = Vec::new();
        for call in held.into_iter().filter(is_pending) {
            let (id, over) = (call.id, given_up.child_token());
            questions.push((id, over.clone()));
            let (approvals, lease) = (self.clone(), lease.clone());
            let span = tracing::error_span!("handler", tool_call_id = %id);
            answers.push(self.tasks().spawn(
                async move { approvals.ask_handler_about(&lease, &call, &over).await }.instrument(span),
            ));
        }
        let mut wait = Wait::until(async {
            let mut all_answered = join_all(answers);
            tokio::select! {
                _answered = &mut all_answered => {}
                () = self.tasks().stopping() => {
                    given_up.cancel();
                    all_answered.await;
                }
            }
        });
        loop {
            let current = self.store.read().await?.held_calls(lease.run.assistant_message_id).await?;
            for (id, over) in &questions {
                if !current.iter().any(|call| call.id == *id && is_pending(call)) {
                    over.cancel();
                }
            }
            if wait.is_last_look() {
                return Ok(current);
            }
            wait.for_next_look(wake.woken_in(|thread| thread == lease.thread.id)).await;
        }
    }

    /// Asks about one call, unless the question ends first, and applies the answer.
    async fn ask_handler_about(&self, lease: &Lease, call: &ToolCall, over: &CancellationToken) {
        let gate = self.gate();
        let shown = gate.shown_hash(call);
        let opener = self.opener_for_handler(lease, call.id);
        let request = ApprovalRequest::of(call, &gate, &lease.thread, &lease.run, opener);
        let handler = &self.handler;
        let answered = AssertUnwindSafe(async { handler.ask(request).await }).catch_unwind();
        let answer = tokio::select! {
            // The end of the question wins over the answer.
            biased;
            () = over.cancelled() => return,
            answer = timeout(self.approval.handler_timeout, answered) => match answer {
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
            HandlerAnswer::Approved { inputs, remember } => {
                (Choice::Approve { inputs, note: None }, remember)
            }
            HandlerAnswer::Denied { reason } => (Choice::Reject { reason: as_stored(reason) }, None),
            HandlerAnswer::Cancelled { reason } => {
                if let Err(error) = self.withdraw(lease, call.id, as_stored(reason)).await {
                    tracing::warn!(%error, "could not cancel a call; the call is left to the routes");
                }
                return;
            }
            HandlerAnswer::Deferred => return,
        };
        match self.decide_for_handler(lease, call.id, answer, remember, shown).await {
            // Another decider was faster, or the call expired.
            Ok(()) | Err(DecideError::Closed(_)) => {}
            Err(DecideError::InvalidInputs(errors)) => {
                let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
                tracing::warn!(
                    ?pointers,
                    "the approval handler's inputs do not fit; the call is left to the routes"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "the handler's decision was refused; the call is left to the routes");
            }
        }
    }

    /// Returns what reads the inputs of a call for the handler.
    fn opener_for_handler(&self, lease: &Lease, id: ToolCallId) -> Opener {
        let (approvals, requester, actor) = (self.clone(), requester(lease), self.handler_actor());
        Opener(Arc::new(move || {
            let (approvals, requester, actor) = (approvals.clone(), requester.clone(), actor.clone());
            let reveal = async move {
                let by = Decider::Handler { actor: &actor, requester: &requester };
                Ok(approvals.reveal(by, id).await?.input)
            };
            reveal.boxed()
        }))
    }

    async fn decide_for_handler(
        &self,
        lease: &Lease,
        tool_call_id: ToolCallId,
        answer: Choice,
        remember: Option<Remember>,
        shown: String,
    ) -> Result<(), DecideError> {
        let requester = requester(lease);
        let actor = self.handler_actor();
        let request = DecisionRequest {
            tool_call_id,
            choice: answer,
            input_hash: Some(shown),
            preview_hash: None,
            link: None,
            surface: Surface::Handler,
            remember: remember.map(|Remember::Session| GrantRequest::Session),
            scope: Scope::Run(lease.run.id),
            // The turn resumes by itself. If it cannot, no client knows that this was the last decision.
            server_resumes: true,
        };
        let by = Decider::Handler { actor: &actor, requester: &requester };
        // This future is large, and without the box the task of every question would be as large.
        Box::pin(self.decide(by, request)).await?;
        Ok(())
    }

    /// Withdraws a call that is still pending.
    async fn withdraw(
        &self,
        lease: &Lease,
        id: ToolCallId,
        reason: Option<String>,
    ) -> Result<(), StoreError> {
        let requester = requester(lease);
        let write = self.store.urgent_write().await?;
        let thread = &write.lock_thread(lease.thread.id).await?;
        let waits = |call: &ToolCall| call.held && is_pending(call);
        let found = write.call(&requester, id).await?;
        let Some((call, _)) = found.filter(|(call, _)| waits(call)) else { return Ok(()) };
        let now = write.now();
        if call.expires_at.is_some_and(|at| at <= now) {
            write.expire(thread, &call, self.times.resume_on_expiry).await?;
            write.commit().await?;
        } else {
            let actor = self.handler_actor();
            if write.withdraw(thread, &call, &actor, Surface::Handler, reason).await? {
                // The server resumes the run, as after a decision.
                write.set_server_resumes(thread, call.run_id).await?;
                write.commit().await?;
                let metrics = &self.executor.metrics;
                metrics.decided(Verdict::Cancel, Surface::Handler, "decided");
                metrics.hold_ended(Verdict::Cancel, now.since(call.created_at));
            }
        }
        self.wake_waiters();
        Ok(())
    }

    /// Returns the actor of the handler, for decisions and events.
    fn handler_actor(&self) -> String {
        super::handlers::actor(self.handler.as_ref())
    }
}

fn is_pending(call: &ToolCall) -> bool {
    matches!(call.state, State::Pending)
}

/// Whether a held call is approved and has not ended. A delegated call does not count: it may take days, and
/// its child may itself wait for approvals.
fn is_approved_and_open(call: &ToolCall) -> bool {
    call.end().is_none() && !call.is_delegated() && !is_pending(call)
}

/// Returns the principal on whose behalf a turn runs, with the roles for the policy.
fn requester(lease: &Lease) -> Principal {
    let (tenant_id, user_id) = (lease.thread.tenant_id.clone(), lease.thread.user_id.clone());
    Principal { tenant_id, user_id, roles: lease.run.options.roles.clone() }
}

/// A text column of Postgres does not accept U+0000.
fn as_stored(reason: Option<String>) -> Option<String> {
    reason.map(|reason| without_nul(&reason))
}
