//! Continuations that have to wait for approved calls to end. After the wait the run resumes, or the client
//! gets the status of the calls.

use super::posted_decisions::{backfill, backfill_before_turn, held_at};
use super::turn::{TurnTask, internal, span};
use super::turn_log::{Enough, TurnLog};
use super::{Chat, Started};
use crate::agent::Wait;
use crate::domain::Principal;
use crate::domain::call::{State, ToolCall};
use crate::domain::message::{Step, StepStatus, Usage};
use crate::domain::run::{Run, RunStatus, TurnError};
use crate::domain::turn::{FinishReason, Spent, TurnEvent};
use crate::store::{Lease, StoreError, Thread, Write};
use crate::stream::Dialect;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

/// A continuation that waits.
#[derive(Debug)]
pub(super) struct PendingContinuation {
    pub(super) run: Run,
    /// The step whose held calls the continuation waits for. The client has nothing after this step.
    pub(super) step: i32,
    /// The running turn that contains this step, if there is one.
    pub(super) turn: Option<Arc<TurnLog>>,
}

/// The outcome of the wait.
enum Resolution {
    /// The run resumes in this task.
    Resume(Box<Lease>),
    /// Another turn of the run is running: its log, and the events before that turn.
    Attach(Arc<TurnLog>, Vec<TurnEvent<'static>>),
    /// No turn follows, and the client gets the stored state. Some clients also need the error as the cause.
    End(Option<TurnError>),
}

/// The state after the wait, read with the thread locked.
struct Observed {
    steps: Vec<Step>,
    /// The current state of the run, if it is the last run of the thread.
    last: Option<Run>,
}

fn is_under_way(call: &ToolCall) -> bool {
    call.end().is_none() && call.state != State::Pending
}

impl Chat {
    /// Starts the stream of a continuation that waits. The model is not called unless all these calls end.
    pub(super) fn announce(
        &self,
        principal: Principal,
        thread: Thread,
        waiting: PendingContinuation,
        dialect: Dialect,
    ) -> Started {
        // Other continuations get streams of their own. They cannot attach to this one.
        let waiter = TurnTask::detached(self, waiting.run.id);
        let started = Started::of(&waiting.run, waiter.log.clone());
        let span = span(&thread, &waiting.run);
        let task = async move {
            if let Err(error) = waiter.run(&principal, &thread, &waiting, dialect).await {
                let (error, spent) = (internal(&error), Spent::default());
                waiter.log.emit(TurnEvent::Failed { error, spent });
            }
        };
        self.tasks.spawn(task.instrument(span));
        started
    }

    /// Returns how long a continuation waits. Clients that post until they see an outcome would post again at
    /// once. For them the limit is the longest run of a tool, plus one lease in which another process can
    /// begin the call after the first process died.
    fn wait_limit(&self, dialect: Dialect) -> Duration {
        if dialect.posts_until_settled() {
            self.agent.executor.gate.longest().saturating_add(self.approval.lease)
        } else {
            self.approval.wait
        }
    }
}

impl TurnTask {
    async fn run(
        &self,
        principal: &Principal,
        thread: &Thread,
        waiting: &PendingContinuation,
        dialect: Dialect,
    ) -> Result<(), StoreError> {
        let (write, observed) = self.wait(thread, waiting, dialect).await?;
        let then = self.resolve(&write, principal, thread, waiting, &observed).await?;
        write.commit().await?;
        match then {
            Resolution::Resume(lease) => self.turn(*lease, TurnEvent::continuation(&observed.steps)).await,
            Resolution::Attach(other, before) => {
                self.emit_all(before);
                let mut reader = other.reader();
                let emit = |event: &TurnEvent<'_>| {
                    self.log.emit(event.clone().into_owned());
                    Enough::No
                };
                while reader.next(emit).await {}
            }
            Resolution::End(error) => {
                self.emit_all(backfill(&observed.steps, waiting.step));
                // An AI SDK 4 client shows an error in place of the text that it has.
                let error = error.filter(|_| dialect.posts_until_settled());
                self.log.emit(observed.end(waiting, error));
            }
        }
        Ok(())
    }

    fn emit_all(&self, events: Vec<TurnEvent<'static>>) {
        for event in events {
            self.log.emit(event);
        }
    }

    /// Waits until no call is under way, or until the limit, and returns the state at that time. One read
    /// covers all calls. It does not use the connections that are reserved for decisions, because any number
    /// of continuations may wait.
    async fn wait(
        &self,
        thread: &Thread,
        waiting: &PendingContinuation,
        dialect: Dialect,
    ) -> Result<(Write, Observed), StoreError> {
        let chat = &self.chat;
        let time = chat.wait_limit(dialect);
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
            if wait.is_last_look() || !self.must_wait(&steps, waiting.step, dialect) {
                let write = chat.store.write().await?;
                write.lock_thread(thread).await?;
                let steps = write.steps(thread, message).await?;
                // A pending call may have been approved meanwhile.
                if wait.is_last_look() || !self.must_wait(&steps, waiting.step, dialect) {
                    let last = write.latest_run(thread).await?.filter(|last| last.id == waiting.run.id);
                    return Ok((write, Observed { steps, last }));
                }
            }
            wait.for_next_look(wake.woken()).await;
        }
    }

    /// Whether a held call of this step is under way. A stopping process begins no call, so a wait for
    /// another process to begin one would only delay its exit. Only clients that would post again at once
    /// wait for delegated calls.
    fn must_wait(&self, steps: &[Step], step: i32, dialect: Dialect) -> bool {
        let leaves = self.chat.tasks.is_stopping();
        held_at(steps, step)
            .filter(|call| !call.is_delegated() || dialect.posts_until_settled())
            .any(|call| is_under_way(call) && !(leaves && matches!(call.state, State::Approved(_))))
    }

    /// Returns the outcome of the wait. If the run resumes, also begins its turn.
    async fn resolve(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
        waiting: &PendingContinuation,
        observed: &Observed,
    ) -> Result<Resolution, StoreError> {
        let chat = &self.chat;
        if held_at(&observed.steps, waiting.step).any(is_under_way) {
            return Ok(Resolution::End(Some(TurnError::outcome_not_known_yet())));
        }
        match observed.last.as_ref().map(|last| last.status) {
            Some(RunStatus::Running) => {
                let before = write.steps_before_turn(thread, &waiting.run).await?;
                // The running turn contains the step, so the client has already read that turn.
                let in_turn = !before.iter().any(|step| step.n == waiting.step);
                let other = chat.running_log(write, thread, &waiting.run).await?.filter(|_| !in_turn);
                return Ok(match other {
                    None if in_turn => Resolution::End(Some(TurnError::outcome_not_known_yet())),
                    Some(other) => Resolution::Attach(other, backfill_before_turn(&before, waiting.step)),
                    None => Resolution::End(Some(TurnError::taken_over())),
                });
            }
            Some(RunStatus::Waiting | RunStatus::Failed) if observed.can_resume_after(waiting.step) => {}
            Some(_) | None => return Ok(Resolution::End(None)),
        }
        if chat.tasks.is_stopping() {
            return Ok(Resolution::End(Some(TurnError::interrupted())));
        }
        if !chat.has_room(write, principal, thread).await? {
            return Ok(Resolution::End(Some(TurnError::no_room())));
        }
        Ok(match write.resume_run(thread, &waiting.run, chat.approval.lease).await? {
            Some(lease) => {
                // Before the commit: a request that finds the run in the database has to find its log too.
                chat.live.adopt(self.run_id, &self.log);
                Resolution::Resume(Box::new(lease))
            }
            None => Resolution::End(None),
        })
    }
}

impl Observed {
    /// Whether all awaited calls have ended and no complete step follows. If one follows, another turn has
    /// resumed the run and may have reached another hold, which this client's decisions are not about.
    fn can_resume_after(&self, step: i32) -> bool {
        let has_successor =
            self.steps.iter().any(|other| other.n > step && other.status == StepStatus::Complete);
        let calls = self.steps.iter().filter(|other| other.n == step).flat_map(|step| &step.calls);
        !has_successor && calls.filter(|call| call.pauses()).all(|call| call.end().is_some())
    }

    /// Returns the last event of the stream.
    fn end(&self, waiting: &PendingContinuation, error: Option<TurnError>) -> TurnEvent<'static> {
        let message = self.steps.iter().filter_map(|step| step.usage).reduce(Usage::plus);
        let spent = Spent { turn: Usage::default(), message };
        if let Some(error) = error {
            return TurnEvent::Failed { error, spent };
        }
        let status = self.last.as_ref().map_or(waiting.run.status, |last| last.status);
        if status == RunStatus::Cancelled {
            return TurnEvent::Cancelled { spent };
        }
        let can_resume = matches!(status, RunStatus::Waiting | RunStatus::Failed) && self.last.is_some();
        let mut calls_shown =
            self.steps.iter().filter(|step| step.n >= waiting.step).flat_map(|step| &step.calls);
        let waits = can_resume || calls_shown.any(|call| call.end().is_none());
        let reason = if waits { FinishReason::ToolCalls } else { FinishReason::Stop };
        TurnEvent::Finished { reason, spent }
    }
}
