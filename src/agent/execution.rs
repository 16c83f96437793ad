//! Execution of permitted calls: runs the tool and stores the outcome.

use super::heartbeat::{Halt, Heartbeat, Heartbeats, LeaseInForce};
use super::offer::OutcomeOffer;
use super::progress::{self, LastReport};
use super::retry::persist;
use super::tasks::Tasks;
use super::wake::Wake;
use crate::tools::gate::{Gate, Gates};
use crate::tools::request_answer::time_without_waits;
use crate::tools::run::Returned;
use holdpoint_core::call::{Execution, Outcome, State};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::owner::Owner;
use holdpoint_core::text::model_texts;
use holdpoint_core::tool::assignment::Assignment;
use holdpoint_core::tool::secrets::Edit;
use holdpoint_metrics::Metrics;
use holdpoint_store::permit::Permit;
use holdpoint_store::request_sender::InputRequests;
use holdpoint_store::waited::WaitedTime;
use holdpoint_store::{AgentLimits, DelegateOutcome, SettleOutcome, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// The time that a tool may take to return while the process exits. It is well within the time left to store
/// the outcome.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of running a permit.
#[derive(Debug)]
pub(crate) enum Ran {
    /// The call has ended, in this state.
    Ended(Box<State>),
    /// The call has not ended: it will begin again.
    Again,
    /// The call has not ended here: a child run executes it, or its owner.
    Delegated,
}

/// The executor, which runs tools.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    pub(crate) store: Store,
    pub(crate) gates: Gates,
    pub(crate) tasks: Tasks,
    /// Renews the leases of the turns and the calls of this process.
    pub(crate) heartbeats: Heartbeats,
    /// How long an execution may go without a renewal before it counts as dead.
    pub(crate) lease: Duration,
    /// How long a call that may begin again waits for a claim.
    pub(crate) start_deadline: Duration,
    pub(crate) metrics: Metrics,
    /// The limits on sub-agents.
    pub(crate) agents: AgentLimits,
    /// Sent when a child run is ready to begin, and by the modules above for their own changes.
    pub(crate) wake: Wake,
}

impl Executor {
    /// Returns the gate with the tools of this moment.
    pub(crate) fn gate(&self) -> Gate {
        self.gates.now()
    }

    /// Runs one call and settles it, or delegates it to a child run or to an owner. First offers a known outcome to a
    /// request that may settle the call.
    pub(crate) async fn run(
        &self,
        permit: Permit,
        asks: Arc<dyn InputRequests>,
        offer: Option<OutcomeOffer>,
    ) -> Result<Ran, StoreError> {
        let span = tracing::error_span!(
            "tool",
            tool_call_id = %permit.tool_call_id(),
            tool = permit.tool_name(),
            otel.name = format_args!("execute_tool {}", permit.tool_name()),
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = permit.tool_name(),
            gen_ai.tool.call.id = %permit.tool_call_id(),
        );
        let run = async {
            match self.gate().assignment(&permit) {
                None => self.run_and_settle(permit, asks, offer).await,
                Some(assignment) => self.delegate(permit, assignment).await,
            }
        };
        run.instrument(span).await
    }

    /// Delegates the call to a child run. Before that commit nothing has started, and the call may begin again.
    async fn delegate(
        &self,
        permit: Permit,
        assignment: Result<Assignment, String>,
    ) -> Result<Ran, StoreError> {
        let outcome = match assignment {
            Ok(assignment) => match self.begin_child(&permit, &assignment).await? {
                DelegateOutcome::Started => {
                    self.wake.send();
                    return Ok(Ran::Delegated);
                }
                DelegateOutcome::TooDeep => Outcome::Failed(model_texts::TOO_DEEP.to_owned()),
                DelegateOutcome::TooMany => Outcome::Failed(model_texts::TOO_MANY.to_owned()),
                DelegateOutcome::Unwanted => Outcome::Failed(model_texts::CHILD_UNWANTED.to_owned()),
                DelegateOutcome::Lost => Outcome::Lost,
            },
            Err(why) => Outcome::Failed(why),
        };
        let (id, execution) = (permit.tool_call_id(), permit.execution());
        self.write_down(id, execution, permit.edit(), outcome, permit.waited(), None).await
    }

    async fn begin_child(
        &self,
        permit: &Permit,
        assignment: &Assignment,
    ) -> Result<DelegateOutcome, StoreError> {
        let begin = || async {
            let write = self.store.urgent_write().await?;
            write.delegate(permit, assignment, self.agents).await
        };
        Ok(persist(self.lease, begin).await?.value)
    }

    /// Runs the tool and settles its call. The tool has had its effect before the call is settled. So a busy
    /// or restarting database does not discard the outcome: the write is retried until the lease of the
    /// execution is over.
    async fn run_and_settle(
        &self,
        permit: Permit,
        asks: Arc<dyn InputRequests>,
        offer: Option<OutcomeOffer>,
    ) -> Result<Ran, StoreError> {
        let (tool_call_id, execution) = (permit.tool_call_id(), permit.execution());
        let edit = permit.edit().cloned();
        let (tool_name, began) = (permit.tool_name().to_owned(), Instant::now());
        // Kept to the end, because the call counts as not settled until then.
        let (cancellation, waited) = (permit.cancellation().clone(), permit.waited().clone());
        let permit = permit.with_requests(asks.clone());
        let in_force = LeaseInForce::Execution { call: tool_call_id, execution };
        let heartbeat = self.heartbeats.keep(in_force);
        let executor = self.clone();
        // In a task of its own: a tool that does not stop when asked to continues, and is not dropped.
        let mut tool = self.tasks.spawn(async move { executor.begin(permit).await });
        // Boxed, because most tools report nothing.
        let reports =
            Box::pin(progress::keep_reports(&self.store, &self.tasks, tool_call_id, execution, &waited));
        let ended = tokio::select! {
            ended = self.end_of(&mut tool, execution, &heartbeat, &cancellation, &waited) => ended,
            never = reports => match never {},
        };
        self.metrics.tool_ran(&tool_name, began.elapsed());
        drop(heartbeat);
        let unknown = match ended {
            Ok(Returned::Outcome(outcome)) => {
                return self
                    .write_down(tool_call_id, execution, edit.as_ref(), outcome, &waited, offer)
                    .await;
            }
            Ok(Returned::Accepted(owner)) => {
                return self.hand_over(tool_call_id, execution, &owner, asks).await;
            }
            Err(unknown) => unknown,
        };
        tracing::warn!("abandoned a tool that did not return");
        let written = self.write_down(tool_call_id, execution, edit.as_ref(), unknown, &waited, None).await;
        let executor = self.clone();
        let late = async move { executor.settle_late(tool, tool_call_id, execution, edit.as_ref()).await };
        self.tasks.spawn(late);
        written
    }

    /// Hands a call over to the service that accepted it. Until that commit only the lease says that the call goes
    /// on, so the write is retried until the lease is over. A report of the service settles the call in any case. The
    /// work of an MCP server is polled from then on.
    async fn hand_over(
        &self,
        tool_call_id: ToolCallId,
        execution: Execution,
        owner: &Owner,
        asks: Arc<dyn InputRequests>,
    ) -> Result<Ran, StoreError> {
        let hand_over = || async {
            let write = self.store.urgent_write().await?;
            write.hand_over(tool_call_id, execution, owner, self.lease).await
        };
        if persist(self.lease, hand_over).await?.value {
            if owner.work.is_some() {
                self.poll_handed_over(tool_call_id, execution, asks).await;
            }
            return Ok(Ran::Delegated);
        }
        Ok(self.settled_elsewhere(tool_call_id).await?.1)
    }

    /// Waits for a tool until its call has to end. Returns what the tool returned, or as the error the
    /// outcome that is known without it. Asks the tool to stop before that, and lets it return.
    async fn end_of(
        &self,
        tool: &mut JoinHandle<Returned>,
        execution: Execution,
        heartbeat: &Heartbeat,
        cancellation: &CancellationToken,
        waited: &WaitedTime,
    ) -> Result<Returned, Outcome> {
        let halt = tokio::select! {
            // A known outcome is not discarded.
            biased;
            returned = &mut *tool => return Ok(returned_by(returned, execution)),
            halt = heartbeat.halt() => Some(halt),
            () = time_without_waits(self.gate().time_limit(), waited) => None,
        };
        cancellation.cancel();
        let (unknown, grace) = match halt {
            Some(Halt::Cancelled) | None => (Outcome::Interrupted, Some(self.gate().cancel_grace())),
            // The effect of the tool cannot be stopped, and its late outcome can still be stored.
            Some(Halt::Lost | Halt::Leaving) => (Outcome::Lost, None),
        };
        let over = async {
            match grace {
                Some(grace) => sleep(grace).await,
                None => std::future::pending().await,
            }
        };
        // A tool that stopped and does not know its outcome leaves the outcome that is known without it.
        let stopped = |returned| match returned_by(returned, execution) {
            Returned::Outcome(Outcome::Lost) => unknown.clone().into(),
            known => known,
        };
        tokio::select! {
            biased;
            returned = &mut *tool => return Ok(stopped(returned)),
            () = over, if !self.tasks.is_aborted() => return Err(unknown),
            () = self.tasks.aborted() => {}
        }
        // The process exits, and an outcome that is not stored soon is not stored at all.
        match timeout(self.gate().cancel_grace().min(FINAL_WRITE_TIMEOUT), &mut *tool).await {
            Ok(returned) => Ok(stopped(returned)),
            Err(_elapsed) => {
                tool.abort();
                Err(unknown)
            }
        }
    }

    /// Settles an abandoned call when its tool returns, unless the process exits first.
    async fn settle_late(
        &self,
        mut tool: JoinHandle<Returned>,
        tool_call_id: ToolCallId,
        execution: Execution,
        edit: Option<&Edit>,
    ) {
        let returned = tokio::select! {
            biased;
            returned = &mut tool => returned_by(returned, execution),
            () = self.tasks.aborted() => return tool.abort(),
        };
        let Returned::Outcome(outcome @ (Outcome::Succeeded(_) | Outcome::Failed(_))) = returned else {
            return;
        };
        // A report that comes after the first outcome is not stored.
        let waited = WaitedTime::default();
        match self.write_down(tool_call_id, execution, edit, outcome, &waited, None).await {
            Ok(_) => tracing::info!("an abandoned tool has returned"),
            Err(error) => tracing::error!(%error, "could not store a late outcome"),
        }
    }

    /// Settles an execution, and returns the result for its call.
    async fn write_down(
        &self,
        tool_call_id: ToolCallId,
        execution: Execution,
        edit: Option<&Edit>,
        outcome: Outcome,
        waited: &WaitedTime,
        offer: Option<OutcomeOffer>,
    ) -> Result<Ran, StoreError> {
        let result = self.gate().result_text(&outcome, edit);
        // The request that takes an offer stores no report.
        let offer = offer.filter(|_| waited.unstored().is_none());
        if let (Some(offer), Outcome::Succeeded(_) | Outcome::Failed(_)) = (offer, &outcome)
            && let Some(state) = offer.make(tool_call_id, execution, &outcome, &result, self.lease).await
        {
            return Ok(Ran::Ended(state));
        }
        let last = LastReport::of(waited);
        let settle = || self.settle(tool_call_id, execution, &outcome, &result, &last);
        let settled = persist(self.lease, settle).await?;
        match settled.value {
            SettleOutcome::Ended(state) => return Ok(Ran::Ended(state)),
            SettleOutcome::Again => return Ok(Ran::Again),
            SettleOutcome::Nothing => {}
        }
        let (stored, ran) = self.settled_elsewhere(tool_call_id).await?;
        if !settled.tried_before {
            tracing::warn!(state = stored, "ignored an outcome that came too late");
        }
        Ok(ran)
    }

    /// Returns the result for a call that was settled elsewhere, or by a commit that reported an error, with the name
    /// of its state.
    async fn settled_elsewhere(
        &self,
        tool_call_id: ToolCallId,
    ) -> Result<(Option<&'static str>, Ran), StoreError> {
        let stored = self.store.urgent_read().await?.any_call(tool_call_id).await?;
        let Some(stored) = stored else { return Ok((None, Ran::Again)) };
        let state = Some(stored.state.word());
        Ok(match stored {
            ended if ended.end().is_some() => (state, Ran::Ended(Box::new(ended.state))),
            delegated if delegated.is_delegated() => (state, Ran::Delegated),
            _ => (state, Ran::Again),
        })
    }

    async fn begin(&self, permit: Permit) -> Returned {
        if self.tasks.is_aborted() && permit.execution().attempt > 1 {
            return Outcome::Lost.into();
        }
        if self.tasks.is_aborted() {
            return Outcome::Failed("the server stopped before it began; it did not run".to_owned()).into();
        }
        self.gate().run(permit).await
    }

    async fn settle(
        &self,
        tool_call_id: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: &str,
        last: &LastReport<'_>,
    ) -> Result<SettleOutcome, StoreError> {
        let write = self.store.urgent_write().await?;
        Box::pin(last.store(&write, tool_call_id, execution)).await?;
        let (result, deadline) = (result.to_owned(), self.start_deadline);
        let settled = Box::pin(write.settle(tool_call_id, execution, outcome, result, deadline)).await?;
        write.commit().await?;
        Ok(settled)
    }
}

/// Converts the result of a tool's task. A task that failed outside of the tool may have had its effect.
fn returned_by(returned: Result<Returned, JoinError>, execution: Execution) -> Returned {
    match returned {
        Ok(Returned::Outcome(outcome)) => outcome.of_attempt(execution.attempt).into(),
        Ok(accepted @ Returned::Accepted(_)) => accepted,
        Err(_broken) => Outcome::Interrupted.into(),
    }
}
