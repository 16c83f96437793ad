//! Admission of turn requests: finds or creates the run that a request asks for.

use super::continuation::PendingContinuation;
use super::intent::{Intent, intent};
use super::posted_decisions::{backfill_before_turn, decided_step};
use super::request::{Action, AdmitError, ThreadName, TurnRequest};
use super::{Chat, Started};
use crate::config::WhilePending;
use crate::domain::Principal;
use crate::domain::id::{MessageId, ToolCallId};
use crate::domain::message::Step;
use crate::domain::replay::replay;
use crate::domain::run::{Run, RunOptions, RunStatus};
use crate::domain::turn::TurnEvent;
use crate::store::{Extent, Lease, NewRun, NewThread, Question, StoreError, Thread, Which, Write};
use crate::stream::Dialect;
use crate::tools::ToolRegistry;
use std::collections::HashSet;

/// The title of a thread that was created without one.
pub(crate) const DEFAULT_TITLE: &str = "New chat";

/// The outcome of admission.
pub(super) enum Next {
    /// The request attaches to a running turn.
    Attach(Run),
    /// A turn of this request begins.
    Begin(Box<Lease>),
    /// The run waits for decisions, or for calls to end.
    Announce(PendingContinuation),
}

impl Next {
    /// Returns the part of the message before this outcome, for a client that has nothing of the message.
    async fn full_backfill(
        &self,
        write: &Write,
        thread: &Thread,
    ) -> Result<Vec<TurnEvent<'static>>, StoreError> {
        let mut steps = match self {
            Self::Attach(running) => write.steps_before_turn(thread, running).await?,
            Self::Begin(lease) => write.steps(thread, lease.run.assistant_message_id).await?,
            Self::Announce(waiting) => write.steps(thread, waiting.run.assistant_message_id).await?,
        };
        if let Self::Announce(waiting) = self {
            // The announcement itself emits the later steps.
            steps.retain(|step| step.n <= waiting.step);
        }
        Ok(replay(&steps))
    }
}

/// The outcome, and the events of its message that this client gets first.
type NextAndBackfill = (Next, Vec<TurnEvent<'static>>);

impl Chat {
    /// Finds or creates the run that serves the request, and starts its turn.
    pub(crate) async fn admit(
        &self,
        principal: &Principal,
        name: &ThreadName,
        ask: TurnRequest,
        dialect: Dialect,
    ) -> Result<Started, AdmitError> {
        let TurnRequest { action: wants, options, decisions: answers } = ask;
        self.check(principal, &options)?;
        if self.tasks.is_stopping() {
            return Err(AdmitError::Stopping);
        }
        // Before the thread is locked: each decision is a transaction of its own.
        let only_continues = matches!(wants, Action::Continue { .. });
        self.apply_posted_decisions(principal, name, &answers, only_continues).await?;
        let answered = answers.into_iter().map(|answer| answer.tool_call_id).collect();
        let write = self.store.write().await?;
        let thread = self.thread(&write, principal, name, &wants).await?;
        let extent = write.lock_thread(&thread).await?;
        let intent = intent(&write, &thread, wants).await?;
        self.check_fits(extent, &intent)?;
        // An AI SDK 4 client reads the continuation as a message of its own.
        let lacks_all =
            dialect != Dialect::DataV1 && matches!(intent, Intent::Continue { from_the_start: true, .. });
        let (next, backfill_events) =
            self.next(&write, principal, &thread, intent, options, &answered).await?;
        let before = if lacks_all { next.full_backfill(&write, &thread).await? } else { backfill_events };
        let started = self.commit_and_start(write, principal, thread, next, dialect).await?;
        Ok(Started { backfill: before, ..started })
    }

    /// Commits the transaction and starts the turn or the wait.
    pub(super) async fn commit_and_start(
        &self,
        write: Write,
        principal: &Principal,
        thread: Thread,
        next: Next,
        dialect: Dialect,
    ) -> Result<Started, AdmitError> {
        match next {
            Next::Attach(run) => {
                let log = self.running_log(&write, &thread, &run).await?;
                Ok(Started::of(&run, log.ok_or(AdmitError::TurnInProgress)?))
            }
            Next::Begin(lease) => {
                let steps = write.steps(&lease.thread, lease.run.assistant_message_id).await?;
                // A request that finds the run in the database has to find its log too. The log stays empty
                // until the commit.
                let task = self.turn_task(lease.run.id);
                write.commit().await?;
                Ok(task.start(*lease, TurnEvent::continuation(&steps)))
            }
            Next::Announce(waiting) => {
                write.commit().await?;
                Ok(self.announce(principal.clone(), thread, waiting, dialect))
            }
        }
    }

    fn check(&self, principal: &Principal, options: &RunOptions) -> Result<(), AdmitError> {
        if let Some(id) = &options.model
            && self.model(Some(id)).is_none()
        {
            return Err(AdmitError::UnknownModel(id.clone()));
        }
        match options.tools.iter().flatten().find(|name| !self.tools().has_for(principal, name)) {
            Some(unknown) => Err(AdmitError::UnknownTool(unknown.clone())),
            None => Ok(()),
        }
    }

    /// Checks that the thread has room for the additions of a request. A continuation adds nothing.
    fn check_fits(&self, holds: Extent, intent: &Intent) -> Result<(), AdmitError> {
        let (messages, bytes) = match intent {
            Intent::Continue { .. } => return Ok(()),
            Intent::New { text, .. } | Intent::Edit { text, .. } => (2, text.len()),
            Intent::Regenerate { .. } => (1, 0),
        };
        let limits = &self.agent.limits;
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if holds.messages.saturating_add(messages) > limits.thread_messages {
            return Err(AdmitError::ThreadFull { max: limits.thread_messages, of: "messages" });
        }
        // At exactly the limit there would be no room for the answer.
        if holds.bytes.saturating_add(bytes) >= limits.thread_bytes {
            return Err(AdmitError::ThreadFull { max: limits.thread_bytes, of: "bytes" });
        }
        Ok(())
    }

    fn tools(&self) -> &ToolRegistry {
        self.agent.executor.gate.registry()
    }

    /// Returns the options on behalf of this principal, without the tools that the principal may not run.
    fn on_behalf_of(&self, principal: &Principal, options: RunOptions) -> RunOptions {
        options.on_behalf_of(principal.roles.clone(), self.tools().only_for(principal))
    }

    async fn thread(
        &self,
        write: &Write,
        principal: &Principal,
        name: &ThreadName,
        wants: &Action,
    ) -> Result<Thread, AdmitError> {
        match name {
            ThreadName::Known(name) => write.thread_named(principal, name).await?.ok_or(AdmitError::NoThread),
            ThreadName::OrNew(name) => match write.thread_named(principal, name).await? {
                Some(found) => Ok(found),
                None if matches!(wants, Action::Continue { .. }) => Err(AdmitError::NothingToContinue),
                None => {
                    let new = NewThread {
                        title: DEFAULT_TITLE.to_owned(),
                        client_id: Some(name.clone()),
                        parent: None,
                    };
                    Ok(write.create_thread(principal, new).await?)
                }
            },
        }
    }

    /// Returns the running run of the thread. Closes a run whose process is dead.
    async fn under_way(&self, write: &Write, thread: &Thread) -> Result<Option<Run>, StoreError> {
        match write.running(thread).await? {
            Some(running) if !write.close_dead_turn(thread, &running).await? => Ok(Some(running)),
            Some(_) | None => Ok(None),
        }
    }

    async fn next(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
        intent: Intent,
        options: RunOptions,
        answered: &HashSet<ToolCallId>,
    ) -> Result<NextAndBackfill, AdmitError> {
        let running = self.under_way(write, thread).await?;
        // A call of the parent thread waits for this run.
        let delegated = write.is_delegated_to(thread).await?;
        let question = match intent {
            Intent::Continue { message, .. } => {
                return self.continuation(write, principal, thread, running, message, answered).await;
            }
            _ if running.is_some() || delegated => return Err(AdmitError::TurnInProgress),
            Intent::New { text, client_id } => {
                self.apply_while_pending(write, principal, thread).await?;
                Question::New { text, client_id }
            }
            Intent::Edit { ordinal, text, client_id } => {
                write.supersede_from(thread, ordinal, &principal.actor()).await?;
                Question::New { text, client_id }
            }
            Intent::Regenerate { message, ordinal } => {
                write.supersede_from(thread, ordinal + 1, &principal.actor()).await?;
                Question::Stored(message)
            }
        };
        self.check_turns(write, principal, thread).await?;
        let options = self.on_behalf_of(principal, options);
        let new = NewRun { question, options, lease: self.approval.lease };
        Ok((Next::Begin(Box::new(write.begin_run(thread, new).await?)), Vec::new()))
    }

    async fn apply_while_pending(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
    ) -> Result<(), AdmitError> {
        match self.approval.while_pending {
            WhilePending::Defer => Ok(()),
            WhilePending::Cancel => {
                write.cancel_calls(thread, Which::Pending, &principal.actor()).await?;
                Ok(())
            }
            WhilePending::Reject if write.pending_count(thread).await? > 0 => {
                Err(AdmitError::AwaitingApproval)
            }
            WhilePending::Reject => Ok(()),
        }
    }

    /// Refuses a turn over the limit of concurrent turns or over the rate limit. The check holds only in the
    /// transaction that begins the turn.
    async fn check_turns(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
    ) -> Result<(), AdmitError> {
        match self.full(write, thread).await? {
            None => Ok(self.rate_limit.count(principal)?),
            Some((of, max)) => Err(AdmitError::TooManyTurns { of, max }),
        }
    }

    /// Whether one more turn may begin. If so, the turn is counted against the rate limit.
    pub(super) async fn has_room(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
    ) -> Result<bool, StoreError> {
        Ok(self.full(write, thread).await?.is_none() && self.rate_limit.count(principal).is_ok())
    }

    /// Returns the owner whose limit of concurrent turns is reached, and the limit.
    async fn full(&self, write: &Write, thread: &Thread) -> Result<Option<(&'static str, u32)>, StoreError> {
        let (of_user, of_tenant) = (self.caps.turns_per_user, self.caps.turns_per_tenant);
        if of_user.is_none() && of_tenant.is_none() {
            return Ok(None);
        }
        let under_way = write.turns_under_way(thread).await?;
        let caps = [("user", under_way.of_user, of_user), ("tenant", under_way.of_tenant, of_tenant)];
        Ok(caps.into_iter().find_map(|(of, count, max)| {
            let max = max.filter(|max| count >= u64::from(max.get()))?;
            Some((of, max.get()))
        }))
    }

    /// Returns the outcome of a continuation of `message`, or else of the last message, for a client that
    /// decides the `answered` calls.
    async fn continuation(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
        running: Option<Run>,
        message: Option<MessageId>,
        answered: &HashSet<ToolCallId>,
    ) -> Result<NextAndBackfill, AdmitError> {
        let last = write.latest_run(thread).await?.ok_or(AdmitError::NothingToContinue)?;
        let run = match message {
            Some(message) if message != last.assistant_message_id => write.run_of(thread, message).await?,
            Some(_) | None => Some(last.clone()),
        };
        let run = run.ok_or(AdmitError::NothingToContinue)?;
        let steps = match answered.is_empty() {
            true => Vec::new(),
            false => write.steps(thread, run.assistant_message_id).await?,
        };
        let known = decided_step(&steps, answered);
        let settles = |turn| {
            let options = self.on_behalf_of(principal, run.options.clone());
            let step = known.ok_or(AdmitError::NothingToContinue)?;
            Ok((
                Next::Announce(PendingContinuation { run: Run { options, ..run.clone() }, step, turn }),
                Vec::new(),
            ))
        };
        let before = |steps: &[Step]| known.map_or_else(Vec::new, |known| backfill_before_turn(steps, known));
        if run.id != last.id {
            // The user sent a later message, so this run is not resumed. The client gets the status of its
            // calls.
            return settles(None);
        }
        match (running, run.status) {
            (Some(running), _) => {
                let shown_steps = match known {
                    Some(_) => write.steps_before_turn(thread, &running).await?,
                    None => Vec::new(),
                };
                if known.is_some_and(|known| shown_steps.last().is_none_or(|last| last.n < known)) {
                    // The client has already read the turn that it would attach to, except its end.
                    let turn = self.running_log(write, thread, &running).await?;
                    return settles(Some(turn.ok_or(AdmitError::TurnInProgress)?));
                }
                Ok((Next::Attach(running), before(&shown_steps)))
            }
            (None, RunStatus::Completed | RunStatus::Cancelled) => settles(None),
            (None, _) => Ok((self.go_on(write, principal, thread).await?, before(&steps))),
        }
    }

    /// Returns the outcome of a continuation when no turn is running. The principal may have fewer roles than
    /// when the run began.
    pub(super) async fn go_on(
        &self,
        write: &Write,
        principal: &Principal,
        thread: &Thread,
    ) -> Result<Next, AdmitError> {
        let latest = write.latest_run(thread).await?.ok_or(AdmitError::NothingToContinue)?;
        // Before the outcomes below: a continuation that waits for a call may resume the run with these
        // options.
        let options = self.on_behalf_of(principal, latest.options.clone());
        let latest = Run { options, ..latest };
        match latest.status {
            RunStatus::Completed | RunStatus::Cancelled => return Err(AdmitError::NothingToContinue),
            RunStatus::Running => return Err(AdmitError::TurnInProgress),
            // A turn may have failed between its hold and its end.
            RunStatus::Waiting | RunStatus::Failed => {
                let pausing = write.pausing_calls(latest.assistant_message_id).await?;
                if let Some(open) = pausing.iter().find(|call| call.end().is_none()) {
                    let step = open.step;
                    return Ok(Next::Announce(PendingContinuation { run: latest, step, turn: None }));
                }
            }
        }
        self.check_turns(write, principal, thread).await?;
        let resumed = write.resume_run(thread, &latest, self.approval.lease).await?;
        resumed.map(|lease| Next::Begin(Box::new(lease))).ok_or(AdmitError::TurnInProgress)
    }
}
