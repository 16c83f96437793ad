//! Cancellation of runs: pending calls are withdrawn, and the turn stops where it is.

use super::Chat;
use crate::agent::{Wait, Work};
use crate::approvals::{Denied, has_denied};
use futures::future::join_all;
use holdpoint_core::Principal;
use holdpoint_core::id::{RunId, ThreadId};
use holdpoint_core::run::{Run, RunStatus};
use holdpoint_store::Thread;

/// The reason why a run is not cancelled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CancelRunError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The run had ended.
    #[error("the run has ended")]
    Ended(Box<Run>),
}

has_denied!(CancelRunError);

impl Chat {
    /// Cancels a run. Returns once the run has ended, or after `approval.wait` with the run as it is. If
    /// another process runs the turn, that process sees the request when it next renews its lease.
    pub(crate) async fn cancel(
        &self,
        principal: &Principal,
        id: RunId,
    ) -> Result<(Run, Thread), CancelRunError> {
        let run = self.request_cancel(principal, id).await?;
        if let Some(run) = run.filter(|run| run.status != RunStatus::Cancelled) {
            return Err(CancelRunError::Ended(Box::new(run)));
        }
        self.ended(principal, id).await
    }

    /// Cancels the work of a session: every run of its threads that is running, waits, or failed with waiting
    /// calls. Requests every cancellation, those of the root thread first, before it waits for an end.
    /// Returns the cancelled runs with their status after the wait.
    pub(crate) async fn cancel_session(
        &self,
        principal: &Principal,
        session: ThreadId,
    ) -> Result<Vec<(Run, Thread)>, CancelRunError> {
        let read = self.store.urgent_read().await?;
        let found = read.runs_of_session(principal, session).await?.ok_or(Denied::NotFound)?;
        drop(read);
        self.cancel_all(principal, found).await
    }

    /// Cancels the work of one thread, as [`cancel_session`](Self::cancel_session) does for all threads of a
    /// session.
    pub(crate) async fn cancel_thread(
        &self,
        principal: &Principal,
        thread: ThreadId,
    ) -> Result<Vec<(Run, Thread)>, CancelRunError> {
        let read = self.store.urgent_read().await?;
        let found = read.runs_of_thread(principal, thread).await?.ok_or(Denied::NotFound)?;
        drop(read);
        self.cancel_all(principal, found).await
    }

    async fn cancel_all(
        &self,
        principal: &Principal,
        found: Vec<RunId>,
    ) -> Result<Vec<(Run, Thread)>, CancelRunError> {
        for id in &found {
            match self.request_cancel(principal, *id).await {
                // The run has just ended, or its thread was deleted.
                Ok(_) | Err(CancelRunError::Denied(Denied::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        let mut current = Vec::with_capacity(found.len());
        for ended in join_all(found.into_iter().map(|id| self.ended(principal, id))).await {
            match ended {
                Ok(cancelled) => current.push(cancelled),
                Err(CancelRunError::Ended(..) | CancelRunError::Denied(Denied::NotFound)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(current)
    }

    /// Cancels a run, or wakes its turn to check whether to end. Returns the run if it had already ended.
    async fn request_cancel(&self, principal: &Principal, id: RunId) -> Result<Option<Run>, CancelRunError> {
        let write = self.store.urgent_write().await?;
        let (_, thread) = write.run(principal, id).await?.ok_or(Denied::NotFound)?;
        let thread = write.lock_thread(thread.id).await?;
        let (run, _) = write.run(principal, id).await?.ok_or(Denied::NotFound)?;
        let requested = write.cancel_run(&thread, &run, &principal.actor()).await?;
        write.commit().await?;
        let heartbeats = &self.agent.executor.heartbeats;
        heartbeats.renew_now(Work::Turn(id));
        requested.iter().flatten().for_each(|call| heartbeats.renew_now(Work::Call(*call)));
        // The children of the run have to stop too. If the run is itself a child, its call can end.
        self.wake.send();
        Ok(requested.is_none().then_some(run))
    }

    /// Waits until a turn that was asked to stop has stopped, at most `approval.wait`.
    async fn ended(&self, principal: &Principal, id: RunId) -> Result<(Run, Thread), CancelRunError> {
        let mut wait = Wait::until(self.tasks.wait_limit(self.approval.wait));
        loop {
            let log = self.live.find(id);
            let read = self.store.urgent_read().await?;
            let (run, thread) = read.run(principal, id).await?.ok_or(Denied::NotFound)?;
            drop(read);
            match run.status {
                RunStatus::Running if !wait.is_last_look() => {}
                RunStatus::Running | RunStatus::Cancelled => return Ok((run, thread)),
                // The run reached its own end first.
                _ => return Err(CancelRunError::Ended(Box::new(run))),
            }
            let over = async {
                match log {
                    Some(log) => log.over().await,
                    // A turn of another process has no log here.
                    None => std::future::pending().await,
                }
            };
            wait.for_next_look(over).await;
        }
    }
}
