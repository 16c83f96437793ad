//! The resumer: resumes runs with `server_resumes` once none of their calls is open, and drives the child
//! runs of calls (`sub_agents`). Every process has a resumer. If several of them find a run, one resumes it,
//! by the same compare-and-set as a client.

use super::Chat;
use super::continuation::LockedRequest;
use super::request::AdmitError;
use futures::FutureExt;
use holdpoint_core::Principal;
use holdpoint_core::id::RunId;
use holdpoint_core::run::{Run, RunStatus};
use holdpoint_store::{StoreError, Thread};
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// The minimum time between the starts of two looks. A look finds everything that was committed in between.
const PACE: Duration = Duration::from_millis(20);

/// The reason why a run is not resumed on request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResumeRunError {
    /// No such run, for this principal.
    #[error("there is no such run")]
    NotFound,
    /// The run has ended, or the user sent a later message.
    #[error("the run does not wait")]
    NotWaiting(Box<Run>),
    #[error("a call of the run is open")]
    OpenCalls,
    /// The turn is not admitted.
    #[error(transparent)]
    NotAdmitted(#[from] AdmitError),
}

impl From<StoreError> for ResumeRunError {
    fn from(error: StoreError) -> Self {
        Self::NotAdmitted(error.into())
    }
}

impl Chat {
    /// Resumes a run that waits for nothing, for its user, without a page that reads the answer. A run whose turn is
    /// running stays as it is.
    pub(crate) async fn resume_run(
        &self,
        principal: &Principal,
        id: RunId,
    ) -> Result<(Run, Thread), ResumeRunError> {
        let write = self.store.write().await?;
        let (_, thread) = write.run(principal, id).await?.ok_or(ResumeRunError::NotFound)?;
        let thread = write.lock_thread(thread.id).await?;
        let (run, _) = write.run(principal, id).await?.ok_or(ResumeRunError::NotFound)?;
        let is_latest = write.latest_run(&thread).await?.is_some_and(|latest| latest.id == id);
        match run.status {
            RunStatus::Running => return Ok((run, thread.into_thread())),
            RunStatus::Waiting | RunStatus::Failed if is_latest && !thread.is_deleted => {}
            _ => return Err(ResumeRunError::NotWaiting(Box::new(run))),
        }
        let locked = LockedRequest { write, thread, principal };
        let next = self.continue_by_server(&locked).await?.ok_or(ResumeRunError::OpenCalls)?;
        let of = locked.thread.clone().into_thread();
        self.commit_and_start(locked, next).await?;
        Ok((Run { status: RunStatus::Running, error: None, finished_at: None, ..run }, of))
    }

    /// Resumes runs until the process stops. It looks for runs after the wakes of this process, and every `every`
    /// for the runs of other processes.
    pub(crate) async fn run_resumer(&self, every: Duration) {
        let mut wake = self.wake.signal();
        loop {
            let next_look = Instant::now() + PACE;
            // A panic must not end the resumer unnoticed.
            match AssertUnwindSafe(self.resume_found()).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "could not look for runs to resume"),
                Err(_panic) => tracing::error!("the resumer panicked"),
            }
            let woken = async {
                sleep_until(next_look).await;
                wake.woken().await;
            };
            tokio::select! {
                () = self.tasks.stopping() => return,
                () = woken => {}
                () = sleep(every) => {}
            }
        }
    }

    async fn resume_found(&self) -> Result<(), AdmitError> {
        let work = self.store.read_once().await?.resumer_work().await?;
        if work.children {
            // First: a run may wait for a call that ends with its child.
            self.drive_children().await?;
        }
        if work.children || work.runs {
            self.resume_all().await?;
        }
        Ok(())
    }

    async fn resume_all(&self) -> Result<(), AdmitError> {
        let mut after = None;
        loop {
            let found = self.store.read_once().await?.runs_to_resume(after).await?;
            let Some(last) = found.last().copied() else { return Ok(()) };
            after = Some(last);
            for id in found {
                if self.tasks.is_stopping() {
                    return Ok(());
                }
                self.try_resume(id).await;
            }
        }
    }

    pub(super) async fn try_resume(&self, id: RunId) {
        match self.resume(id).await {
            Ok(()) => {}
            // There may be room later.
            Err(error @ (AdmitError::TooManyTurns { .. } | AdmitError::TooOften(_))) => {
                tracing::debug!(run_id = %id, %error, "a run will resume later");
            }
            Err(error) => tracing::warn!(run_id = %id, %error, "could not resume a run"),
        }
    }

    /// Resumes a run on behalf of the thread's user, with the roles from when the run last began or resumed.
    async fn resume(&self, id: RunId) -> Result<(), AdmitError> {
        let write = self.store.write().await?;
        let Some((run, thread)) = write.run_to_resume(id).await? else { return Ok(write.commit().await?) };
        let (tenant_id, user_id) = (thread.tenant_id.clone(), thread.user_id.clone());
        let principal = Principal { tenant_id, user_id, roles: run.options.roles };
        let locked = LockedRequest { write, thread, principal: &principal };
        if let Some(next) = self.continue_by_server(&locked).await? {
            tracing::info!(run_id = %id, "the server resumes a run");
            // This process has no reader for the stream yet. A client that attaches finds the log.
            self.commit_and_start(locked, next).await?;
        }
        Ok(())
    }
}
