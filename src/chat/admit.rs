//! Admission of turn requests: finds or creates the run that a request asks for.

use super::continuation::{ClientState, LockedRequest, RequestOutcome};
use super::intent::{Intent, intent};
use super::posted_decisions::AppliedDecisions;
use super::report::decided_elsewhere;
use super::request::{Action, AdmitError, ThreadName, TurnRequest};
use super::{Chat, StartedTurn};
use crate::agent::Settlement;
use crate::approvals::Denied;
use crate::config::WhilePending;
use holdpoint_core::Principal;
use holdpoint_core::message::UserWords;
use holdpoint_core::run::{Run, RunOptions};
use holdpoint_store::{
    CallsToCancel, Extent, LockedThread, NewRun, Question, StoreError, Thread, Transcript, Write,
};
use holdpoint_stream::ClientTraits;
use std::collections::HashSet;
use std::sync::Arc;

/// The title of a thread that was created without one.
pub(crate) const DEFAULT_TITLE: &str = "New chat";

impl Chat {
    /// Finds or creates the run that serves the request, and starts its turn.
    pub(crate) async fn admit(
        &self,
        principal: &Principal,
        name: &ThreadName,
        ask: TurnRequest,
        client: ClientTraits,
    ) -> Result<StartedTurn, AdmitError> {
        let TurnRequest { action, options, decisions: answers, shown, key, earlier } = ask;
        self.check(principal, &options)?;
        if self.tasks.is_stopping() {
            return Err(AdmitError::Stopping);
        }
        // Before the thread is locked: each decision is a transaction of its own.
        let only_continues = matches!(action, Action::Continue { .. });
        let AppliedDecisions { accepted, unsettled } =
            Box::pin(self.apply_posted_decisions(principal, name, &answers, only_continues)).await?;
        let answered: HashSet<_> = answers.into_iter().map(|answer| answer.tool_call_id).collect();
        let write = self.store.write().await?;
        // Boxed: many requests may wait for a connection above, and few have one.
        let admitted = Box::pin(async move {
            // Before the thread is read: a result adds to the bytes of its thread.
            let mut settlements = Vec::new();
            for outcome in unsettled {
                settlements.extend(outcome.settle(&write).await?);
            }
            let thread = self.thread(&write, principal, name, &action).await?;
            let transcript = match thread.extent.messages {
                0 => Transcript::default(),
                _ => self.transcript(&write, &thread).await?,
            };
            let mut intent = intent(&transcript, action, key, earlier)?;
            self.check_fits(thread.extent, &intent)?;
            let left_out = intent.left_out();
            let locked = LockedRequest { write, thread, principal };
            let client = ClientState { answered: &answered, shown: &shown, traits: client };
            let next = self.next(&locked, transcript, intent, options, client).await?;
            let started = self.commit_and_start(locked, next).await?;
            settlements.into_iter().for_each(Settlement::committed);
            // This process may not be able to read the running turn.
            let started = started.ok_or(AdmitError::TurnInProgress)?;
            Ok::<_, AdmitError>(StartedTurn { accepted, left_out, ..started })
        });
        admitted.await
    }

    fn check(&self, principal: &Principal, options: &RunOptions) -> Result<(), AdmitError> {
        if let Some(id) = &options.model
            && self.model(Some(id)).is_none()
        {
            return Err(AdmitError::UnknownModel(id.clone()));
        }
        let gate = self.agent.executor.gate();
        match options.tools.iter().flatten().find(|name| !gate.registry().has_for(principal, name)) {
            Some(unknown) => Err(AdmitError::UnknownTool(unknown.clone())),
            None => Ok(()),
        }
    }

    /// Checks that the thread has room for the additions of a request. A continuation adds nothing.
    fn check_fits(&self, holds: Extent, intent: &Intent) -> Result<(), AdmitError> {
        let (messages, bytes) = match intent {
            Intent::Continue { .. } => return Ok(()),
            Intent::New { text, earlier, .. } | Intent::Edit { text, earlier, .. } => {
                let count = u64::try_from(earlier.taken.len()).unwrap_or(u64::MAX);
                let length = |sum: usize, words: &UserWords| sum.saturating_add(words.text.len());
                (count.saturating_add(2), earlier.taken.iter().fold(text.len(), length))
            }
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

    /// Returns the options on behalf of this principal, without the tools that the principal may not run.
    pub(super) fn on_behalf_of(&self, principal: &Principal, options: RunOptions) -> RunOptions {
        options
            .on_behalf_of(principal.roles.clone(), self.agent.executor.gate().registry().only_for(principal))
    }

    /// Returns the named thread, locked.
    async fn thread(
        &self,
        write: &Write,
        principal: &Principal,
        name: &ThreadName,
        action: &Action,
    ) -> Result<LockedThread, AdmitError> {
        match name {
            ThreadName::Known(name) => {
                write.lock_thread_named(principal, name).await?.ok_or(Denied::NotFound.into())
            }
            // A continuation creates nothing.
            ThreadName::OrNew(name) if matches!(action, Action::Continue { .. }) => {
                write.lock_thread_named(principal, name).await?.ok_or(AdmitError::NothingToContinue)
            }
            ThreadName::OrNew(name) => {
                Ok(write.lock_or_create_thread(principal, name, DEFAULT_TITLE).await?)
            }
        }
    }

    /// Returns the running run of the thread. Closes a run whose process is dead.
    pub(super) async fn running_run(
        &self,
        write: &Write,
        thread: &LockedThread,
    ) -> Result<Option<Run>, StoreError> {
        match write.running(thread).await? {
            Some(running) if !write.close_dead_turn(thread, &running).await? => Ok(Some(running)),
            Some(_) | None => Ok(None),
        }
    }

    /// Returns the transcript of a locked thread. Closes a turn whose process is dead.
    pub(super) async fn transcript(
        &self,
        write: &Write,
        thread: &LockedThread,
    ) -> Result<Transcript, StoreError> {
        let transcript = write.transcript(thread).await?;
        if let Some((running, lease_until)) = transcript.running()
            && lease_until.is_some_and(|until| until < write.now())
            && write.close_dead_turn(thread, running).await?
        {
            return write.transcript(thread).await;
        }
        Ok(transcript)
    }

    async fn next(
        &self,
        locked: &LockedRequest<'_>,
        mut transcript: Transcript,
        intent: Intent,
        options: RunOptions,
        client: ClientState<'_>,
    ) -> Result<RequestOutcome, AdmitError> {
        let LockedRequest { write, thread, principal } = locked;
        let question = match intent {
            Intent::Continue { message, from_the_start } => {
                return self.continue_by_post(locked, &transcript, message, from_the_start, client).await;
            }
            _ if transcript.running().is_some() => return Err(AdmitError::TurnInProgress),
            // A call of the parent thread waits for a delegated thread.
            _ if thread.parent_id.is_some() && write.is_delegated_to(thread).await? => {
                return Err(AdmitError::TurnInProgress);
            }
            Intent::New { text, client_id, earlier } => {
                if self.apply_while_pending(locked, &transcript).await? {
                    transcript = write.transcript(thread).await?;
                }
                Question::New { earlier: earlier.taken, message: UserWords { text, client_id } }
            }
            Intent::Edit { ordinal, text, client_id, earlier } => {
                write.supersede_from(thread, ordinal, &principal.actor()).await?;
                transcript = write.transcript(thread).await?;
                Question::New { earlier: earlier.taken, message: UserWords { text, client_id } }
            }
            Intent::Regenerate { message, ordinal } => {
                write.supersede_from(thread, ordinal + 1, &principal.actor()).await?;
                transcript = write.transcript(thread).await?;
                Question::Stored(message)
            }
        };
        let added = match &question {
            Question::New { earlier, .. } => earlier.len(),
            Question::Stored(_) => 0,
        };
        self.check_turns_with(locked, added).await?;
        let options = self.on_behalf_of(principal, options);
        let new = NewRun { question, options, lease: self.approval.lease };
        let lease = Arc::new(write.begin_run(thread, &mut transcript, new).await?);
        let first = self.open_first(write, thread, &lease, &transcript).await?;
        let next = RequestOutcome::Begin { lease, first, backfill: Vec::new(), continued: Vec::new() };
        Ok(next.after(decided_elsewhere(&transcript, None, client.shown)))
    }

    /// Applies the setting for a message that arrives while calls are pending. Returns whether calls were
    /// cancelled.
    async fn apply_while_pending(
        &self,
        locked: &LockedRequest<'_>,
        transcript: &Transcript,
    ) -> Result<bool, AdmitError> {
        let LockedRequest { write, thread, principal } = locked;
        match self.approval.while_pending {
            _ if transcript.pending_count() == 0 => Ok(false),
            WhilePending::Defer => Ok(false),
            WhilePending::Cancel => {
                write.cancel_calls(thread, CallsToCancel::Pending, &principal.actor()).await?;
                Ok(true)
            }
            WhilePending::Reject => Err(AdmitError::AwaitingApproval),
        }
    }

    /// Refuses a turn over the limit of concurrent turns or over the rate limit. The check holds only in the
    /// transaction that begins the turn.
    pub(super) async fn check_turns(&self, locked: &LockedRequest<'_>) -> Result<(), AdmitError> {
        self.check_turns_with(locked, 0).await
    }

    /// Like [`Self::check_turns`], for a turn that brings this number of messages before its own. Each of them
    /// counts as a turn.
    async fn check_turns_with(&self, locked: &LockedRequest<'_>, earlier: usize) -> Result<(), AdmitError> {
        let turns = u32::try_from(earlier).unwrap_or(u32::MAX).saturating_add(1);
        match self.full(&locked.write, &locked.thread).await? {
            None => Ok(self.rate_limit.count_many(locked.principal, turns)?),
            Some((of, max)) => Err(AdmitError::TooManyTurns { of, max }),
        }
    }

    /// Returns the owner whose limit of concurrent turns is reached, and the limit.
    async fn full(&self, write: &Write, thread: &Thread) -> Result<Option<(&'static str, u32)>, StoreError> {
        let (of_user, of_tenant) = (self.caps.turns_per_user, self.caps.turns_per_tenant);
        if of_user.is_none() && of_tenant.is_none() {
            return Ok(None);
        }
        let running = write.running_turns(thread).await?;
        let caps = [("user", running.of_user, of_user), ("tenant", running.of_tenant, of_tenant)];
        Ok(caps.into_iter().find_map(|(of, count, max)| {
            let max = max.filter(|max| count >= u64::from(max.get()))?;
            Some((of, max.get()))
        }))
    }
}
