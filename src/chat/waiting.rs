//! A continuation that has to wait: for calls that were approved and have not ended. Then it goes on, or tells how
//! they stand.

use super::answers::{held_at, missed, missed_before_turn};
use super::live::{Enough, TurnLog};
use super::turn::{Telling, internal, span};
use super::{Chat, Started};
use crate::agent::LOOK_AGAIN;
use crate::domain::Principal;
use crate::domain::call::{State, ToolCall};
use crate::domain::message::{Step, StepStatus, Usage};
use crate::domain::run::{Run, RunStatus, TurnError};
use crate::domain::turn::{FinishReason, Spent, TurnEvent};
use crate::store::{Lease, StoreError, Thread, Write};
use crate::stream::Dialect;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument;

/// What a continuation waits for.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) run: Run,
    /// The step of its message whose held calls are waited for; the page has nothing behind it.
    pub(super) step: i32,
    /// The turn under way in which that step is, if it is in one.
    pub(super) turn: Option<Arc<TurnLog>>,
}

/// What follows the wait.
enum Then {
    /// The run goes on.
    GoesOn(Box<Lease>),
    /// Somebody else goes on with it, here.
    ReadsAlong(Arc<TurnLog>, Vec<TurnEvent<'static>>),
    /// Nothing: what there is is told. Where the page has to know why it ends like this, why.
    Ends(Option<TurnError>),
}

/// How things stand behind the wait, the thread locked.
struct Found {
    steps: Vec<Step>,
    /// The run, as it stands now, if its answer stands last in the thread.
    last: Option<Run>,
}

fn is_under_way(call: &ToolCall) -> bool {
    call.end().is_none() && call.state != State::Pending
}

impl Chat {
    /// Starts the answer to a continuation that waits: no model is called unless all those calls end.
    pub(super) fn announce(
        &self,
        principal: Principal,
        thread: Thread,
        waiting: Waiting,
        dialect: Dialect,
    ) -> Started {
        // Others who continue meanwhile get their own answer: this is not a turn to attach to.
        let telling = Telling::apart(self, waiting.run.id);
        let started = Started::of(&waiting.run, telling.log.clone());
        let span = span(&thread, &waiting.run);
        let task = async move {
            if let Err(error) = telling.wait_and_tell(&principal, &thread, &waiting, dialect).await {
                let (error, spent) = (internal(&error), Spent::default());
                telling.log.say(TurnEvent::Failed { error, spent });
            }
        };
        self.tasks.spawn(task.instrument(span));
        started
    }

    /// How long a continuation waits. Pages that post until they see an outcome would come again at once: so for them
    /// as long as a tool may take, and before that, where who should have begun it went away, somebody else to begin.
    fn patience_with_calls(&self, dialect: Dialect) -> Duration {
        if dialect.posts_until_settled() {
            self.agent.executor.gate.longest().saturating_add(self.settings.lease)
        } else {
            self.settings.wait
        }
    }
}

impl Telling {
    async fn wait_and_tell(
        &self,
        principal: &Principal,
        thread: &Thread,
        waiting: &Waiting,
        dialect: Dialect,
    ) -> Result<(), StoreError> {
        let (write, found) = self.wait(thread, waiting, dialect).await?;
        let then = self.then(&write, principal, thread, waiting, &found).await?;
        write.commit().await?;
        match then {
            Then::GoesOn(lease) => self.turn(*lease, TurnEvent::continued(&found.steps)).await,
            Then::ReadsAlong(other, before) => {
                self.say_all(before);
                let mut reader = other.reader();
                let say = |event: &TurnEvent<'_>| {
                    self.log.say(event.clone().into_owned());
                    Enough::No
                };
                while reader.next(say).await {}
            }
            Then::Ends(error) => {
                self.say_all(missed(&found.steps, waiting.step));
                // A page of AI SDK 4 shows an error in place of the words that it has.
                let error = error.filter(|_| dialect.posts_until_settled());
                self.log.say(found.end(waiting, error));
            }
        }
        Ok(())
    }

    fn say_all(&self, events: Vec<TurnEvent<'static>>) {
        for event in events {
            self.log.say(event);
        }
    }

    /// Waits until no call is under way, or for as long as there is time; then how things stand. All calls are looked at
    /// at once, and not over the connections that are kept for decisions: any number may wait.
    async fn wait(
        &self,
        thread: &Thread,
        waiting: &Waiting,
        dialect: Dialect,
    ) -> Result<(Write, Found), StoreError> {
        let chat = &self.chat;
        let time = chat.patience_with_calls(dialect);
        let until = Instant::now() + time;
        if let Some(turn) = &waiting.turn {
            // One that goes on for longer is seen to be under way.
            let _over = timeout_at(until, turn.over()).await;
        }
        let patience = chat.tasks.patience(until.saturating_duration_since(Instant::now()));
        tokio::pin!(patience);
        let mut settled = chat.approvals.settlements();
        let mut last_look = false;
        let message = waiting.run.assistant_message_id;
        loop {
            let read = chat.store.read().await?;
            let steps = read.steps(thread, message).await?;
            drop(read);
            if last_look || !self.is_to_wait_for(&steps, waiting.step, dialect) {
                let write = chat.store.write().await?;
                write.lock_thread(thread).await?;
                let steps = write.steps(thread, message).await?;
                // What was pending may have been approved meanwhile.
                if last_look || !self.is_to_wait_for(&steps, waiting.step, dialect) {
                    let last = write.latest_run(thread).await?.filter(|last| last.id == waiting.run.id);
                    return Ok((write, Found { steps, last }));
                }
            }
            tokio::select! {
                // The sender lives as long as the chat; an error would only mean looking again sooner.
                _looked = timeout(LOOK_AGAIN, settled.changed()) => {}
                () = &mut patience => last_look = true,
            }
        }
    }

    /// Whether a held call of this step is under way. A process that leaves begins nothing; who waited here for another
    /// to begin would keep it. For what a child does only those pages wait that would post again at once.
    fn is_to_wait_for(&self, steps: &[Step], step: i32, dialect: Dialect) -> bool {
        let leaves = self.chat.tasks.is_stopping();
        held_at(steps, step)
            .filter(|call| !call.is_delegated() || dialect.posts_until_settled())
            .any(|call| is_under_way(call) && !(leaves && matches!(call.state, State::Approved(_))))
    }

    /// What follows, and if it is the run's going on, its beginning.
    async fn then(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
        waiting: &Waiting,
        found: &Found,
    ) -> Result<Then, StoreError> {
        let chat = &self.chat;
        if held_at(&found.steps, waiting.step).any(is_under_way) {
            return Ok(Then::Ends(Some(TurnError::outcome_not_known_yet())));
        }
        match found.last.as_ref().map(|last| last.status) {
            Some(RunStatus::Running) => {
                let before = write.steps_before_turn(thread, &waiting.run).await?;
                // The page has read a turn in which it was asked.
                let in_turn = !before.iter().any(|step| step.n == waiting.step);
                let other = chat.running_log(write, thread, &waiting.run).await?.filter(|_| !in_turn);
                return Ok(match other {
                    None if in_turn => Then::Ends(Some(TurnError::outcome_not_known_yet())),
                    Some(other) => Then::ReadsAlong(other, missed_before_turn(&before, waiting.step)),
                    None => Then::Ends(Some(TurnError::taken_over())),
                });
            }
            Some(RunStatus::Waiting | RunStatus::Failed) if found.goes_on_behind(waiting.step) => {}
            Some(_) | None => return Ok(Then::Ends(None)),
        }
        if chat.tasks.is_stopping() {
            return Ok(Then::Ends(Some(TurnError::interrupted())));
        }
        if !chat.has_room(write, principal, thread).await? {
            return Ok(Then::Ends(Some(TurnError::no_room())));
        }
        Ok(match write.resume_run(thread, &waiting.run, chat.settings.lease).await? {
            Some(lease) => {
                // Before the commit: whoever finds the run in the database finds its log too.
                chat.live.adopt(self.run_id, &self.log);
                Then::GoesOn(Box::new(lease))
            }
            None => Then::Ends(None),
        })
    }
}

impl Found {
    /// Whether all that is waited for has ended, and nothing whole stands behind it: somebody else may have gone on up
    /// to another hold, and what was said here is not for that one.
    fn goes_on_behind(&self, step: i32) -> bool {
        let behind = self.steps.iter().any(|other| other.n > step && other.status == StepStatus::Complete);
        let calls = self.steps.iter().filter(|other| other.n == step).flat_map(|step| &step.calls);
        !behind && calls.filter(|call| call.pauses()).all(|call| call.end().is_some())
    }

    /// What is told last.
    fn end(&self, waiting: &Waiting, error: Option<TurnError>) -> TurnEvent<'static> {
        let message = self.steps.iter().filter_map(|step| step.usage).reduce(Usage::plus);
        let spent = Spent { turn: Usage::default(), message };
        if let Some(error) = error {
            return TurnEvent::Failed { error, spent };
        }
        let status = self.last.as_ref().map_or(waiting.run.status, |last| last.status);
        if status == RunStatus::Cancelled {
            return TurnEvent::Cancelled { spent };
        }
        let can_go_on = matches!(status, RunStatus::Waiting | RunStatus::Failed) && self.last.is_some();
        let mut told = self.steps.iter().filter(|step| step.n >= waiting.step).flat_map(|step| &step.calls);
        let waits = can_go_on || told.any(|call| call.end().is_none());
        let reason = if waits { FinishReason::ToolCalls } else { FinishReason::Stop };
        TurnEvent::Finished { reason, spent }
    }
}
