//! Cancelling a run: its calls that wait are withdrawn, its turn stops where it is.

use super::Chat;
use crate::agent::{POLL_INTERVAL, Work};
use crate::domain::Principal;
use crate::domain::id::{RunId, ThreadId};
use crate::domain::run::{Run, RunStatus};
use crate::store::{StoreError, Thread};
use futures::future::join_all;

/// Why a run is not cancelled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CancelRunError {
    /// No such run, for this principal.
    #[error("there is no such run")]
    NotFound,
    /// It had ended.
    #[error("the run has ended")]
    Ended(Box<Run>),
    /// The database failed: whether it was cancelled is unknown, and asking again is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Chat {
    /// Cancels a run. Comes back once it has ended, or after `approval.wait` with the run as it is: another process
    /// that runs its turn sees the wish when it next renews its lease.
    pub(crate) async fn cancel(
        &self,
        principal: &Principal,
        id: RunId,
    ) -> Result<(Run, Thread), CancelRunError> {
        let run = self.ask_to_stop(principal, id).await?;
        if let Some(run) = run.filter(|run| run.status != RunStatus::Cancelled) {
            return Err(CancelRunError::Ended(Box::new(run)));
        }
        self.ended(principal, id).await
    }

    /// Cancels what goes on in a session: every run of its threads that is under way, waits, or broke with calls that
    /// wait. All are asked before anybody waits for one, those of the root thread first; how each stands then.
    pub(crate) async fn cancel_session(
        &self,
        principal: &Principal,
        session: ThreadId,
    ) -> Result<Vec<(Run, Thread)>, CancelRunError> {
        let read = self.store.urgent_read().await?;
        let found = read.runs_of_session(principal, session).await?.ok_or(CancelRunError::NotFound)?;
        drop(read);
        for id in &found {
            match self.ask_to_stop(principal, *id).await {
                // It has just ended, or its thread was deleted.
                Ok(_) | Err(CancelRunError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        let mut current = Vec::with_capacity(found.len());
        for ended in join_all(found.into_iter().map(|id| self.ended(principal, id))).await {
            match ended {
                Ok(cancelled) => current.push(cancelled),
                Err(CancelRunError::Ended(..) | CancelRunError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(current)
    }

    /// Cancels a run, or has its turn look whether it should end. The run, if it had ended before.
    async fn ask_to_stop(&self, principal: &Principal, id: RunId) -> Result<Option<Run>, CancelRunError> {
        let write = self.store.urgent_write().await?;
        let (_, thread) = write.run(principal, id).await?.ok_or(CancelRunError::NotFound)?;
        write.lock_thread(&thread).await?;
        let (run, thread) = write.run(principal, id).await?.ok_or(CancelRunError::NotFound)?;
        let asked = write.cancel_run(&thread, &run, &principal.actor()).await?;
        write.commit().await?;
        self.tasks.wake(Work::Turn(id));
        let calls = asked.iter().flatten();
        calls.for_each(|call| self.tasks.wake(Work::Call(*call)));
        // What children do for it is to stop too, and who waits for it as a child sees its end.
        self.wake.notify_one();
        Ok(asked.is_none().then_some(run))
    }

    /// Waits until a turn that was asked to stop has, at most `wait`.
    async fn ended(&self, principal: &Principal, id: RunId) -> Result<(Run, Thread), CancelRunError> {
        let limit = self.tasks.wait_limit(self.approval.wait);
        tokio::pin!(limit);
        let mut is_last = false;
        loop {
            let log = self.live.find(id);
            let read = self.store.urgent_read().await?;
            let (run, thread) = read.run(principal, id).await?.ok_or(CancelRunError::NotFound)?;
            drop(read);
            match run.status {
                RunStatus::Running if !is_last => {}
                RunStatus::Running | RunStatus::Cancelled => return Ok((run, thread)),
                // It came to its own end first.
                _ => return Err(CancelRunError::Ended(Box::new(run))),
            }
            let over = async {
                match log {
                    Some(log) => log.over().await,
                    // A turn of another process ends without a word here.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _looked = tokio::time::timeout(POLL_INTERVAL, over) => {}
                () = &mut limit => is_last = true,
            }
        }
    }
}
