//! The runner: goes on with the runs that were left to the server, once no call of them is open, and drives what children
//! do for calls (`children`). Every process has one; what several find, one goes on with, by the same compare-and-set as
//! a client.

use super::Chat;
use super::admit::{AdmitError, Next};
use crate::domain::Principal;
use crate::domain::id::RunId;
use crate::stream::Dialect;
use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

impl Chat {
    /// Goes on with runs until the process is about to leave: when a call of this process has ended, when a turn of it
    /// has paused, when it has begun a child, and, for what others left behind, again and again.
    pub(crate) async fn keep_resuming(&self, every: Duration) {
        let mut settled = self.approvals.wake_signal();
        loop {
            // Nobody would notice a runner that is gone.
            let looked = async {
                // First: a call that ends with its child may be what a run waits for.
                self.drive_children().await?;
                self.resume_all().await
            };
            match AssertUnwindSafe(looked).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "the runs to go on with could not be looked for"),
                Err(_panic) => tracing::error!("going on with runs broke"),
            }
            tokio::select! {
                () = self.tasks.stopping() => return,
                // The sender lives as long as the chat; an error would only mean looking again sooner.
                _looked = settled.changed() => {}
                () = self.wake.notified() => {}
                () = self.agent.executor.delegated.notified() => {}
                () = tokio::time::sleep(every) => {}
            }
        }
    }

    async fn resume_all(&self) -> Result<(), AdmitError> {
        let mut after = None;
        loop {
            let found = self.store.read().await?.runs_to_resume(after).await?;
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
            // There is room another time.
            Err(error @ (AdmitError::TooManyTurns { .. } | AdmitError::TooOften(_))) => {
                tracing::debug!(run_id = %id, %error, "a run goes on later");
            }
            Err(error) => tracing::warn!(run_id = %id, %error, "a run could not go on"),
        }
    }

    /// On behalf of the thread's user, with the roles that they had when the run last began or went on.
    async fn resume(&self, id: RunId) -> Result<(), AdmitError> {
        let write = self.store.write().await?;
        let Some((run, thread)) = write.run_to_resume(id).await? else { return Ok(write.commit().await?) };
        let (tenant_id, user_id) = (thread.tenant_id.clone(), thread.user_id.clone());
        let principal = Principal { tenant_id, user_id, roles: run.options.roles };
        let next = self.go_on(&write, &principal, &thread).await?;
        if matches!(next, Next::Begin(_)) {
            tracing::info!(run_id = %id, "a run goes on by itself");
            // Nobody reads it here; whoever wants to finds its log.
            self.commit_and_start(write, &principal, thread, next, Dialect::DataV1).await?;
        }
        Ok(())
    }
}
