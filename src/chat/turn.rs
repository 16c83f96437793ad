//! The task of a turn. It holds the run's lease, emits the agent's events, and commits the end of the turn
//! before it emits that end.

use super::turn_log::TurnLog;
use super::{Chat, StartedTurn};
use crate::agent::{
    AskHandler, EndedTurn, FirstStep, Heartbeat, LeaseInForce, StartCommitted, Turn, persist,
};
use futures::FutureExt;
use holdpoint_core::call::ToolCall;
use holdpoint_core::id::RunId;
use holdpoint_core::run::{Run, TurnError, TurnErrorCode};
use holdpoint_core::turn::{FinishReason, SpentTokens, TurnEvent};
use holdpoint_metrics::Metrics;
use holdpoint_models::LanguageModel;
use holdpoint_store::{Lease, LockedThread, StoreError, Thread, Transcript, TurnEnd, Write};
use std::fmt::Display;
use std::sync::Arc;
use tracing::{Instrument, Span};

/// A turn that emits to a log. Dropping the task closes the log, so that no reader waits forever.
pub(super) struct TurnTask {
    pub(super) chat: Chat,
    pub(super) run_id: RunId,
    pub(super) log: Arc<TurnLog>,
}

impl Drop for TurnTask {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Without an event the client would post again and again.
            let (error, spent) = (TurnError::internal(), SpentTokens::default());
            self.log.emit(TurnEvent::Failed { error, spent });
        }
        self.log.close();
        self.chat.live.end(self.run_id, &self.log);
    }
}

impl Chat {
    /// Opens the first step of a turn in the transaction that begins the turn, or returns the reason for which the turn
    /// fails without one.
    pub(super) async fn open_first(
        &self,
        write: &Write,
        thread: &LockedThread,
        lease: &Lease,
        transcript: &Transcript,
    ) -> Result<Result<Box<FirstStep>, TurnError>, StoreError> {
        match self.model_of(&lease.run) {
            Ok(model) => self.agent.open_first(write, thread, lease, transcript, model.as_ref()).await,
            Err(error) => Ok(Err(error)),
        }
    }

    /// Returns the model of a run. A model that was removed since is replaced by the default.
    fn model_of(&self, run: &Run) -> Result<&Arc<dyn LanguageModel>, TurnError> {
        let chosen = self.model(run.options.model.as_deref());
        chosen.or_else(|| self.model(None)).ok_or_else(|| TurnError {
            code: TurnErrorCode::Internal,
            message: "There is no model.".to_owned(),
        })
    }

    /// Returns the task of a turn that this process is about to run. Other requests can find its log.
    pub(super) fn turn_task(&self, run_id: RunId) -> TurnTask {
        TurnTask { chat: self.clone(), log: self.live.begin(run_id), run_id }
    }
}

impl TurnTask {
    /// Returns a task that streams to one reader. Other requests cannot attach to it.
    pub(super) fn detached(chat: &Chat, run_id: RunId) -> Self {
        Self { chat: chat.clone(), run_id, log: Arc::default() }
    }

    /// Starts the turn in a task of its own. `continued` reports the held calls after which the run resumes.
    pub(super) fn start(
        self,
        lease: Arc<Lease>,
        first: Result<Box<FirstStep>, TurnError>,
        start_committed: StartCommitted,
        continued: Vec<TurnEvent<'static>>,
    ) -> StartedTurn {
        let started = StartedTurn::of(&lease.run, self.log.clone());
        let tasks = self.chat.tasks.clone();
        let span = span(&lease.thread, &lease.run);
        tasks
            .spawn(async move { self.turn(lease, first, start_committed, continued).await }.instrument(span));
        started
    }

    /// Runs the turn. Before the commit of its start is made, the log has no reader. Before the commit is confirmed, the
    /// task writes nothing that stays.
    pub(super) async fn turn(
        &self,
        lease: Arc<Lease>,
        first: Result<Box<FirstStep>, TurnError>,
        start_committed: StartCommitted,
        continued: Vec<TurnEvent<'static>>,
    ) {
        let _running = self.metrics().turn();
        let in_force = LeaseInForce::Turn { lease: lease.clone(), start_committed: start_committed.clone() };
        let heartbeat = self.chat.agent.executor.heartbeats.keep(in_force);
        continued.into_iter().for_each(|event| self.log.emit(event));
        let mut spent = SpentTokens::default();
        let last = match self.run_agent(&lease, first, start_committed, &heartbeat, &mut spent).await {
            Ok(Some(ended)) => Box::pin(self.end(&lease, ended, spent)).await,
            Ok(None) => return self.report_no_start(),
            Err(error) => Box::pin(self.fail(&lease, error, spent)).await,
        };
        self.log.emit(last);
    }

    /// Reports to readers that the database did not confirm the start of the turn. The commit may have been made all the
    /// same, and a request that found the run since then reads the log, which must have an end. The sweeper closes the run
    /// with the same error.
    pub(super) fn report_no_start(&self) {
        let (error, spent) = (TurnError::interrupted(), SpentTokens::default());
        self.log.emit(TurnEvent::Failed { error, spent });
    }

    fn metrics(&self) -> &Metrics {
        &self.chat.agent.executor.metrics
    }

    async fn run_agent(
        &self,
        lease: &Arc<Lease>,
        first: Result<Box<FirstStep>, TurnError>,
        start_committed: StartCommitted,
        heartbeat: &Heartbeat,
        spent: &mut SpentTokens,
    ) -> Result<Option<EndedTurn>, TurnError> {
        let (model, first) = (self.chat.model_of(&lease.run)?, first?);
        let approvals = &self.chat.approvals;
        let asks = |held: Vec<ToolCall>| approvals.ask_handler(lease.clone(), held).boxed();
        let asks: Option<AskHandler<'_>> = if approvals.has_handler() { Some(&asks) } else { None };
        let people = Arc::new(approvals.clone());
        let turn = Turn { lease, heartbeat, model: model.as_ref(), asks, people };
        self.chat.agent.run(&turn, first, start_committed, spent, &|event| self.log.emit(event)).await
    }

    /// Commits the end of a turn that did not fail, and returns the event to emit.
    async fn end(&self, lease: &Lease, ended: EndedTurn, spent: SpentTokens) -> TurnEvent<'static> {
        let EndedTurn { end, reason, is_committed } = ended;
        let ended = if is_committed {
            self.after_end(lease, &end);
            Ok(Some(end))
        } else {
            self.commit_end(lease, end).await
        };
        match ended {
            Ok(Some(TurnEnd::Cancelled)) => TurnEvent::Cancelled { spent },
            Ok(Some(_)) => TurnEvent::Finished { reason, spent },
            Ok(None) => TurnEvent::Failed { error: TurnError::taken_over(), spent },
            Err(error) => TurnEvent::Failed { error: internal(&error), spent },
        }
    }

    async fn fail(&self, lease: &Lease, error: TurnError, spent: SpentTokens) -> TurnEvent<'static> {
        match self.commit_end(lease, TurnEnd::Failed(error.clone())).await {
            Ok(Some(TurnEnd::Cancelled)) => return TurnEvent::Cancelled { spent },
            Ok(Some(TurnEnd::Completed)) => {
                return TurnEvent::Finished { reason: FinishReason::Stop, spent };
            }
            // Also if the run waits: the stream lacks the calls for which it waits, so the client has to read again.
            Ok(_) => {}
            Err(error) => {
                tracing::error!(run_id = %self.run_id, %error, "could not commit the end of a turn")
            }
        }
        TurnEvent::Failed { error, spent }
    }

    async fn commit_end(&self, lease: &Lease, end: TurnEnd) -> Result<Option<TurnEnd>, StoreError> {
        let ended = persist(self.chat.approval.lease, || self.write_end(lease, end.clone())).await?;
        let ended = match ended.value {
            // An earlier commit may have succeeded although it reported an error. Or the lease expired and
            // the turn was closed.
            None if ended.tried_before || lease.may_have_ended() => {
                self.chat.store.read().await?.ended_as(lease, end).await?
            }
            value => value,
        };
        if let Some(end) = &ended {
            self.after_end(lease, end);
        }
        Ok(ended)
    }

    /// Reports a committed end.
    fn after_end(&self, lease: &Lease, end: &TurnEnd) {
        self.metrics().turn_ended(end.as_str(), end.code());
        if matches!(end, TurnEnd::Cancelled) || lease.thread.parent_id.is_some() {
            // The children of the run have to stop too. A parent's call may wait for the end of this run.
            self.chat.wake.send();
        } else if matches!(end, TurnEnd::Waiting) {
            // All calls of the run may have been decided before this commit.
            self.chat.wake.send_in(lease.thread.id);
        }
    }

    async fn write_end(&self, lease: &Lease, end: TurnEnd) -> Result<Option<TurnEnd>, StoreError> {
        let write = self.chat.store.urgent_write().await?;
        let ended = write.end_turn(lease, end).await?;
        write.commit().await?;
        Ok(ended)
    }
}

/// Returns the span of a turn, with its thread and run. Its level is `error`, so that error logs carry the
/// span too.
pub(super) fn span(thread: &Thread, run: &Run) -> Span {
    tracing::error_span!(
        "turn",
        thread_id = %thread.id,
        run_id = %run.id,
        otel.name = "invoke_agent",
        gen_ai.operation.name = "invoke_agent",
        gen_ai.conversation.id = %thread.id,
    )
}

pub(super) fn internal(error: &impl Display) -> TurnError {
    tracing::error!(%error, "a turn failed");
    TurnError::internal()
}
