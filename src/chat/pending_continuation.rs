//! Continuations that have to wait for approved calls to end. After the wait the run resumes, or the client
//! gets the status of the calls.

use super::continuation::{LockedRequest, PendingContinuation, RequestOutcome};
use super::plan::{Request, StoredView, is_in_progress, plan};
use super::posted_decisions::{backfill, held_at};
use super::report::end;
use super::request::AdmitError;
use super::turn::{TurnTask, internal, span};
use super::turn_log::Enough;
use super::{Chat, StartedTurn};
use crate::agent::Wait;
use crate::approvals::Denied;
use futures::FutureExt;
use holdpoint_core::Principal;
use holdpoint_core::call::State;
use holdpoint_core::message::Step;
use holdpoint_core::run::{Run, RunStatus, TurnError};
use holdpoint_core::turn::{SpentTokens, TurnEvent};
use holdpoint_store::{LockedThread, StoreError, Thread, Write};
use holdpoint_stream::ClientTraits;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

impl Chat {
    /// Starts the stream of a continuation that waits. The model is not called unless all these calls end.
    pub(super) fn announce(
        &self,
        principal: Principal,
        thread: Thread,
        waiting: PendingContinuation,
    ) -> StartedTurn {
        // Other continuations get streams of their own. They cannot attach to this one.
        let waiter = TurnTask::detached(self, waiting.run.id);
        let started = StartedTurn::of(&waiting.run, waiter.log.clone());
        let span = span(&thread, &waiting.run);
        let task = async move {
            if let Err(error) = waiter.run(&principal, thread, &waiting).await {
                let (error, spent) = (internal(&error), SpentTokens::default());
                waiter.log.emit(TurnEvent::Failed { error, spent });
            }
        };
        self.tasks.spawn(task.instrument(span));
        started
    }

    /// Returns how long a continuation waits. Clients that post until they see an outcome would post again at
    /// once. For them the limit is the longest run of a tool, plus one lease in which another process can
    /// begin the call after the first process died.
    fn wait_limit(&self, client: ClientTraits) -> Duration {
        if client.reposts_until_settled {
            self.agent.executor.gate().longest().saturating_add(self.approval.lease)
        } else {
            self.approval.wait
        }
    }
}

impl TurnTask {
    async fn run(
        &self,
        principal: &Principal,
        thread: Thread,
        waiting: &PendingContinuation,
    ) -> Result<(), AdmitError> {
        let (write, thread, view) = self.wait(&thread, waiting).await?;
        let locked = LockedRequest { write, thread, principal };
        let next = self.next(&locked, &view, waiting).await?;
        if let RequestOutcome::Begin { .. } = next {
            // Before the commit: a request that finds the run in the database has to find its log too.
            self.chat.live.adopt(self.run_id, &self.log);
        }
        locked.write.commit().await?;
        match next {
            RequestOutcome::Begin { lease, first, continued, .. } => {
                // The steps are not needed as long as the turn runs.
                drop(view);
                let (committed, start_committed) = oneshot::channel();
                let start_committed = start_committed.shared();
                let _ended = committed.send(());
                self.turn(lease, first, start_committed, continued).await;
            }
            RequestOutcome::Attach { log, backfill, .. } => {
                drop(view);
                self.emit_all(backfill);
                let mut reader = log.reader();
                let emit = |event: &TurnEvent<'_>| {
                    self.log.emit(event.clone().into_owned());
                    Enough::No
                };
                while reader.next(emit).await {}
            }
            // Nothing is awaited twice.
            RequestOutcome::Await { .. } | RequestOutcome::Report { .. } => self.report(&view, waiting, None),
            RequestOutcome::End(error) => self.report(&view, waiting, error),
        }
        Ok(())
    }

    /// Returns what follows the wait. If the run resumes, also begins its turn.
    async fn next(
        &self,
        locked: &LockedRequest<'_>,
        view: &StoredView,
        waiting: &PendingContinuation,
    ) -> Result<RequestOutcome, AdmitError> {
        let plan = plan(view, Request::Waited { step: waiting.step }, waiting.client)?;
        match self.chat.execute(locked, view, plan, waiting.client, None).await {
            // Another transaction resumed the run.
            Err(AdmitError::TurnInProgress) => Ok(RequestOutcome::End(None)),
            Err(AdmitError::TooManyTurns { .. } | AdmitError::Denied(Denied::TooOften(_))) => {
                Ok(RequestOutcome::End(Some(TurnError::no_room())))
            }
            next => next,
        }
    }

    /// Emits the stored state after the awaited step, then the end of the stream.
    fn report(&self, view: &StoredView, waiting: &PendingContinuation, error: Option<TurnError>) {
        self.emit_all(backfill(view.steps(), waiting.step));
        // An AI SDK 4 client shows an error in place of the text that it has.
        let error = error.filter(|_| waiting.client.reposts_until_settled);
        self.log.emit(end(view, waiting.step, error));
    }

    fn emit_all(&self, events: Vec<TurnEvent<'static>>) {
        for event in events {
            self.log.emit(event);
        }
    }

    /// Waits until no call is in progress, or until the limit, and returns the state at that time. One read
    /// covers all calls. It does not use the connections that are reserved for decisions, because any number
    /// of continuations may wait.
    async fn wait(
        &self,
        thread: &Thread,
        waiting: &PendingContinuation,
    ) -> Result<(Write, LockedThread, StoredView), StoreError> {
        let chat = &self.chat;
        let time = chat.wait_limit(waiting.client);
        let until = Instant::now() + time;
        if let Some(turn) = &waiting.turn {
            // A turn that runs longer is still running at the check after the wait.
            let _over = timeout_at(until, turn.over()).await;
        }
        let limit = until.saturating_duration_since(Instant::now());
        let mut wait = Wait::until(chat.tasks.wait_limit(limit));
        let mut wake = chat.wake.signal();
        let message = waiting.run.assistant_message_id;
        loop {
            let read = chat.store.read().await?;
            let steps = read.steps(thread, message).await?;
            drop(read);
            if wait.is_last_look() || !self.must_wait(&steps, waiting) {
                let write = chat.store.write().await?;
                let locked = write.lock_thread(thread.id).await?;
                let steps = write.steps(thread, message).await?;
                // A pending call may have been approved meanwhile.
                if wait.is_last_look() || !self.must_wait(&steps, waiting) {
                    let view = self.view(&write, thread, waiting, steps).await?;
                    return Ok((write, locked, view));
                }
            }
            wait.for_next_look(wake.woken_in(|changed| changed == thread.id)).await;
        }
    }

    /// Whether a held call of the awaited step is in progress. A stopping process begins no call, so a wait for
    /// another process to begin one would only delay its exit. Only clients that would post again at once
    /// wait for delegated calls.
    fn must_wait(&self, steps: &[Step], waiting: &PendingContinuation) -> bool {
        let leaves = self.chat.tasks.is_stopping();
        held_at(steps, waiting.step)
            .filter(|call| !call.is_delegated() || waiting.client.reposts_until_settled)
            .any(|call| is_in_progress(call) && !(leaves && matches!(call.state, State::Approved(_))))
    }

    /// Returns the state after the wait.
    async fn view(
        &self,
        write: &Write,
        thread: &Thread,
        waiting: &PendingContinuation,
        steps: Vec<Step>,
    ) -> Result<StoredView, StoreError> {
        let last = write.latest_run(thread).await?.filter(|last| last.id == waiting.run.id);
        let is_last = last.is_some();
        let status = last.map_or(waiting.run.status, |last| last.status);
        // The run keeps the options that it got on behalf of the client.
        let mut view = StoredView::of(Run { status, ..waiting.run.clone() }, is_last);
        if is_last && status == RunStatus::Running {
            view.steps_before_turn = write.steps_before_turn(thread, &waiting.run).await?;
        }
        Ok(StoredView { steps: Some(steps), is_stopping: self.chat.tasks.is_stopping(), ..view })
    }
}
