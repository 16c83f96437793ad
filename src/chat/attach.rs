//! A page that mounts, or was told of a decision, and asks for the turn of its thread.

use super::admit::AdmitError;
use super::{Chat, Started};
use crate::domain::Principal;
use crate::domain::call::State;
use crate::domain::replay::replay;
use crate::domain::run::RunStatus;
use crate::store::{StoreError, Thread, Write};
use crate::stream::Dialect;

impl Chat {
    /// The turn under way in the thread of this name, from its beginning. In the dialects of the UI message stream that
    /// is behind the whole message that it writes, which a page lacks until then. In `data-v1`, where none is and every
    /// held call of the last message has an answer that the model has not read, the turn that goes on with them. `None`
    /// where there is nothing to read.
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
        // Pages of the UI message stream go on by a post.
        if dialect != Dialect::DataV1 || !has_unread_outcomes(&write, &thread).await? {
            // A turn that was found dead stays closed.
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

/// Whether a person has answered every call that the last message holds, and the model has read none of the answers.
/// What broke after it read them is for the person to try again.
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
