//! Continuations of runs: reads the rows, and carries out the plan for them in the transaction of the
//! request.

use super::plan::{Backfill, Plan, Request, StoredView, plan};
use super::posted_decisions::{backfill_before_turn, step_of_one};
use super::report::{self, decided_elsewhere, holds_elsewhere};
use super::request::{AdmitError, ShownCalls};
use super::turn::TurnTask;
use super::turn_log::TurnLog;
use super::{Chat, StartedTurn};
use crate::agent::FirstStep;
use futures::FutureExt;
use holdpoint_core::Principal;
use holdpoint_core::id::{MessageId, ToolCallId};
use holdpoint_core::message::Step;
use holdpoint_core::replay::replay;
use holdpoint_core::run::{Run, RunStatus, TurnError};
use holdpoint_core::turn::TurnEvent;
use holdpoint_store::{Lease, LockedThread, StoreError, Thread, Transcript, Write};
use holdpoint_stream::ClientTraits;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The transaction of a request, with the thread locked.
pub(super) struct LockedRequest<'a> {
    pub(super) write: Write,
    pub(super) thread: LockedThread,
    /// The user on whose behalf the request acts.
    pub(super) principal: &'a Principal,
}

/// What the client of a request has.
#[derive(Clone, Copy)]
pub(super) struct ClientState<'a> {
    /// The calls that the request posts decisions on.
    pub(super) answered: &'a HashSet<ToolCallId>,
    /// The calls that the client shows.
    pub(super) shown: &'a ShownCalls,
    pub(super) traits: ClientTraits,
}

/// What a request leads to, in a transaction that is not committed yet.
pub(super) enum RequestOutcome {
    /// The request reads a running turn.
    Attach { run: Run, log: Arc<TurnLog>, backfill: Vec<TurnEvent<'static>> },
    /// A turn of this request begins. `continued` reports the held calls after which the run resumes.
    Begin {
        lease: Arc<Lease>,
        first: Result<Box<FirstStep>, TurnError>,
        backfill: Vec<TurnEvent<'static>>,
        continued: Vec<TurnEvent<'static>>,
    },
    /// The request waits for calls to end.
    Await { pending: PendingContinuation, backfill: Vec<TurnEvent<'static>> },
    /// No turn follows. The client gets these events.
    Report { run: Run, events: Vec<TurnEvent<'static>> },
    /// No turn follows, with an error as the cause, if there is one.
    End(Option<TurnError>),
}

/// A continuation that waits.
#[derive(Debug)]
pub(super) struct PendingContinuation {
    pub(super) run: Run,
    /// The step whose held calls the continuation waits for. The client has nothing after this step.
    pub(super) step: i32,
    /// The running turn that contains this step, if there is one.
    pub(super) turn: Option<Arc<TurnLog>>,
    pub(super) client: ClientTraits,
}

impl Chat {
    /// Continues `message`, or else the last message, for the client that posts. A dead turn of the thread must be closed
    /// already.
    pub(super) async fn continue_by_post(
        &self,
        locked: &LockedRequest<'_>,
        transcript: &Transcript,
        message: Option<MessageId>,
        has_nothing: bool,
        client: ClientState<'_>,
    ) -> Result<RequestOutcome, AdmitError> {
        let (LockedRequest { write, thread, .. }, ClientState { answered, shown, traits }) = (locked, client);
        let last = transcript.latest_run()?.ok_or(AdmitError::NothingToContinue)?;
        let run = match message {
            Some(message) => transcript.run_of(message)?.ok_or(AdmitError::NothingToContinue)?,
            None => last,
        };
        let is_last = run.id == last.id;
        let mut view = StoredView::of(run.clone(), is_last);
        let continues = view.can_resume() || (is_last && run.status == RunStatus::Running);
        if !continues || !answered.is_empty() || !shown.open.is_empty() {
            view.steps = Some(transcript.steps(run.assistant_message_id).to_vec());
        }
        view.holds_elsewhere = !continues && holds_elsewhere(transcript, run.assistant_message_id);
        let decided = step_of_one(view.steps(), answered);
        let open = step_of_one(view.steps(), &shown.open);
        if view.can_resume() {
            view.pausing = transcript.pausing_calls(run.assistant_message_id)?;
        } else if continues && (decided.is_some() || open.is_some()) {
            view.steps_before_turn = write.steps_before_turn(thread, &view.run).await?;
        }
        let plan = plan(&view, Request::Post { decided, open, has_nothing }, traits)?;
        let next = self.execute(locked, &view, plan, traits, Some(transcript)).await?;
        let elsewhere = decided_elsewhere(transcript, Some(run.assistant_message_id), shown);
        Ok(next.after(elsewhere))
    }

    /// Attaches to the running turn of the thread, or resumes its last run for a client that resumes by GET.
    pub(super) async fn continue_by_get(
        &self,
        locked: &LockedRequest<'_>,
        client: ClientTraits,
    ) -> Result<RequestOutcome, AdmitError> {
        let LockedRequest { write, thread, .. } = locked;
        if !client.resumes_by_get {
            let Some(run) = self.running_run(write, thread).await? else {
                return Ok(RequestOutcome::End(None));
            };
            let view = StoredView::of(run, true);
            let plan = plan(&view, Request::Get, client)?;
            return self.execute(locked, &view, plan, client, None).await;
        }
        let transcript = self.transcript(write, thread).await?;
        let run = match transcript.running() {
            Some((running, _)) => Some(running),
            None => transcript.latest_run()?,
        };
        let Some(run) = run else { return Ok(RequestOutcome::End(None)) };
        let mut view =
            StoredView { is_stopping: self.tasks.is_stopping(), ..StoredView::of(run.clone(), true) };
        if view.can_resume() {
            view.pausing = transcript.pausing_calls(run.assistant_message_id)?;
            let mut held = view.pausing.iter().filter(|call| call.held);
            view.outcomes_were_sent = held.any(|call| !transcript.texts_of(call.id).is_empty());
        }
        let plan = plan(&view, Request::Get, client)?;
        self.execute(locked, &view, plan, client, Some(&transcript)).await
    }

    /// Resumes the last run of the thread without a client. Returns `None` if the run has to wait for a call.
    pub(super) async fn continue_by_server(
        &self,
        locked: &LockedRequest<'_>,
    ) -> Result<Option<RequestOutcome>, AdmitError> {
        let LockedRequest { write, thread, .. } = locked;
        let transcript = write.transcript(thread).await?;
        let last = transcript.latest_run()?.ok_or(AdmitError::NothingToContinue)?;
        let mut view = StoredView::of(last.clone(), true);
        if view.can_resume() {
            view.pausing = transcript.pausing_calls(last.assistant_message_id)?;
        }
        let client = ClientTraits::NO_CLIENT;
        match plan(&view, Request::Server, client)? {
            plan @ Plan::Resume(_) => {
                self.execute(locked, &view, plan, client, Some(&transcript)).await.map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Carries out a plan, with the transcript of the thread if it is read already. The principal may have
    /// fewer roles than when the run began.
    pub(super) async fn execute(
        &self,
        locked: &LockedRequest<'_>,
        view: &StoredView,
        plan: Plan,
        client: ClientTraits,
        transcript: Option<&Transcript>,
    ) -> Result<RequestOutcome, AdmitError> {
        let LockedRequest { write, thread, principal } = locked;
        let options = self.on_behalf_of(principal, view.run.options.clone());
        let run = Run { options, ..view.run.clone() };
        match plan {
            Plan::Attach(backfill) => {
                let Some(log) = self.running_log(write, thread, &run).await? else {
                    return Ok(RequestOutcome::End(Some(TurnError::taken_over())));
                };
                let backfill = match backfill {
                    Backfill::Nothing => Vec::new(),
                    Backfill::After(step) => backfill_before_turn(&view.steps_before_turn, step),
                    Backfill::Whole => replay(&write.steps_before_turn(thread, &run).await?),
                };
                Ok(RequestOutcome::Attach { run, log, backfill })
            }
            Plan::Resume(backfill) => {
                self.check_turns(locked).await?;
                let lease = write.resume_run(thread, &run, self.approval.lease).await?;
                let lease = Arc::new(lease.ok_or(AdmitError::TurnInProgress)?);
                let transcript = match transcript {
                    Some(transcript) => Cow::Borrowed(transcript),
                    None => Cow::Owned(write.transcript(thread).await?),
                };
                let first = self.open_first(write, thread, &lease, &transcript).await?;
                let steps = transcript.steps(run.assistant_message_id);
                let backfill = match backfill {
                    Backfill::Nothing => Vec::new(),
                    Backfill::After(step) => backfill_before_turn(steps, step),
                    Backfill::Whole => replay(steps),
                };
                Ok(RequestOutcome::Begin {
                    lease,
                    first,
                    backfill,
                    continued: TurnEvent::continuation(steps),
                })
            }
            Plan::Await { step, in_turn, backfill } => {
                let turn = if in_turn { self.running_log(write, thread, &run).await? } else { None };
                if in_turn && turn.is_none() {
                    return Ok(RequestOutcome::End(Some(TurnError::taken_over())));
                }
                let backfill = match backfill {
                    Backfill::Nothing => Vec::new(),
                    Backfill::After(known) => backfill_before_turn(view.steps(), known),
                    Backfill::Whole => {
                        let steps = view.steps_or_read(write, thread).await?;
                        // The end of the wait reports the later steps.
                        let (up_to_it, _) = steps.split_at(steps.partition_point(|other| other.n <= step));
                        replay(up_to_it)
                    }
                };
                Ok(RequestOutcome::Await {
                    pending: PendingContinuation { run, step, turn, client },
                    backfill,
                })
            }
            Plan::Report(report) => {
                let transcript = match transcript {
                    Some(transcript) => Cow::Borrowed(transcript),
                    None => Cow::Owned(write.transcript(thread).await?),
                };
                let events = report::events(view, &transcript, report);
                Ok(RequestOutcome::Report { run, events })
            }
            Plan::End(error) => Ok(RequestOutcome::End(error)),
        }
    }

    /// Commits the transaction and starts the turn or the wait. Returns `None` if no turn follows.
    pub(super) async fn commit_and_start(
        &self,
        locked: LockedRequest<'_>,
        next: RequestOutcome,
    ) -> Result<Option<StartedTurn>, StoreError> {
        let LockedRequest { write, thread, principal } = locked;
        let (started, backfill) = match next {
            RequestOutcome::Attach { run, log, backfill } => (StartedTurn::of(&run, log), backfill),
            RequestOutcome::Begin { lease, first, backfill, continued } => {
                // A request that finds the run in the database has to find its log too. The log has no reader
                // until the commit is made.
                let task = self.turn_task(lease.run.id);
                let (committed, start_committed) = oneshot::channel();
                let start_committed = start_committed.shared();
                let started = if first.as_ref().is_ok_and(|first| first.may_leave_early()) {
                    let started = task.start(lease, first, start_committed, continued);
                    // If the commit fails, `committed` is dropped, and the task ends.
                    write.commit().await?;
                    started
                } else {
                    write.commit().await.inspect_err(|_| task.report_no_start())?;
                    task.start(lease, first, start_committed, continued)
                };
                // The task may have ended already.
                let _ended = committed.send(());
                (started, backfill)
            }
            RequestOutcome::Await { pending, backfill } => {
                write.commit().await?;
                (self.announce(principal.clone(), thread.into_thread(), pending), backfill)
            }
            RequestOutcome::Report { run, events } => {
                write.commit().await?;
                // Dropping the task closes its log.
                let teller = TurnTask::detached(self, run.id);
                (StartedTurn::of(&run, teller.log.clone()), events)
            }
            RequestOutcome::End(_) => {
                // Commits the close of a dead turn.
                write.commit().await?;
                return Ok(None);
            }
        };
        Ok(Some(StartedTurn { backfill, ..started }))
    }
}

impl RequestOutcome {
    /// Returns the same with this event before all others that the client gets.
    pub(super) fn after(mut self, first: Option<TurnEvent<'static>>) -> Self {
        match &mut self {
            Self::Attach { backfill: before, .. }
            | Self::Begin { backfill: before, .. }
            | Self::Await { backfill: before, .. }
            | Self::Report { events: before, .. } => before.splice(0..0, first).for_each(drop),
            Self::End(_) => {}
        }
        self
    }
}

impl StoredView {
    /// Returns the steps of the message, and reads them if they are not read yet.
    async fn steps_or_read(&self, write: &Write, thread: &Thread) -> Result<Cow<'_, [Step]>, StoreError> {
        Ok(match &self.steps {
            Some(steps) => Cow::Borrowed(steps),
            None => Cow::Owned(write.steps(thread, self.run.assistant_message_id).await?),
        })
    }
}
