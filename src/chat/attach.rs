//! Attaching to the turn of a thread: requests of clients that mount, or that learned of a decision.

use super::request::AdmitError;
use super::{Chat, Started};
use crate::domain::Principal;
use crate::domain::call::State;
use crate::domain::replay::replay;
use crate::domain::run::RunStatus;
use crate::store::{StoreError, Thread, Write};
use crate::stream::Dialect;

impl Chat {
    /// Attaches to the running turn of the named thread, from the beginning of the turn. In the dialects of
    /// the UI message stream, the earlier steps of the message come first, because the client does not have
    /// them yet. In `data-v1`, if no turn is running and every held call of the last message has an outcome
    /// that the model has not read, the run resumes. Returns `None` if there is nothing to read.
    pub(crate) async fn attach(
        &self,
        principal: &Principal,
        name: &str,
        dialect: Dialect,
    ) -> Result<Option<Started>, AdmitError> {
        let write = self.store.write().await?;
        let thread = write.thread_named(principal, name).await?.ok_or(AdmitError::NoThread)?;
        write.lock_thread(&thread).await?;
        if let Some(running) = write.running(&thread).await?
            && !write.close_dead_turn(&thread, &running).await?
        {
            let Some(log) = self.running_log(&write, &thread, &running).await? else { return Ok(None) };
            let before = match dialect {
                Dialect::DataV1 => Vec::new(),
                Dialect::Ui(_) => replay(&write.steps_before_turn(&thread, &running).await?),
            };
            return Ok(Some(Started { backfill: before, ..Started::of(&running, log) }));
        }
        // Clients of the UI message stream resume with a POST.
        if dialect != Dialect::DataV1 || !has_unread_outcomes(&write, &thread).await? {
            // Commits the close of a dead turn.
            write.commit().await?;
            return Ok(None);
        }
        if self.tasks.is_stopping() {
            return Err(AdmitError::Stopping);
        }
        let next = self.go_on(&write, principal, &thread).await?;
        self.commit_and_start(write, principal, thread, next, dialect).await.map(Some)
    }
}

/// Whether no held call of the last message is pending and the model has read none of the outcomes. If a turn
/// failed after the model read them, the user has to retry.
async fn has_unread_outcomes(write: &Write, thread: &Thread) -> Result<bool, StoreError> {
    let Some(latest) = write.latest_run(thread).await? else { return Ok(false) };
    if !matches!(latest.status, RunStatus::Waiting | RunStatus::Failed) {
        return Ok(false);
    }
    let held = write.held_calls(latest.assistant_message_id).await?;
    if held.is_empty() || held.iter().any(|call| call.state == State::Pending) {
        return Ok(false);
    }
    let sent_texts = write.sent(held.iter().map(|call| call.id).collect()).await?;
    Ok(sent_texts.is_empty())
}
