//! Drafts of a step: its output so far, stored now and then. A draft outlives the process, and other
//! processes tail it.
//!
//! The model never waits for a draft, and no transaction waits for the model. A background task writes the
//! drafts, one at a time. After a failed draft, the next one is written as usual.

use super::Tasks;
use crate::domain::message::Part;
use crate::store::{OpenStep, Store, StoreError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// A draft is due when output is unwritten for `PAUSE`, or when `BYTES` of it are unwritten. In a long step
/// the size limit is 1/`SHARE` of the step. So the total of the writes grows in proportion to the step,
/// although each draft contains the whole step.
const PAUSE: Duration = Duration::from_secs(1);
const BYTES: usize = 2 << 10;
const SHARE: usize = 4;
/// The pause grows by one `PAUSE` for every `PAUSE_BYTES` of the draft. This limits the writes for slow
/// output too.
const PAUSE_BYTES: usize = 64 << 10;

/// The length of a step so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Length {
    pub(super) parts: usize,
    /// Bytes of text, reasoning and files.
    pub(super) bytes: usize,
}

/// The drafts of one step.
#[derive(Debug)]
pub(super) struct Drafts {
    store: Store,
    tasks: Tasks,
    step: OpenStep,
    written: Length,
    write_in_progress: Option<JoinHandle<()>>,
    /// When the next draft is due, whatever its length.
    next: Instant,
}

impl Drafts {
    pub(super) fn of(step: OpenStep, store: Store, tasks: Tasks) -> Self {
        let next = Instant::now() + PAUSE;
        Self { store, tasks, step, written: Length::default(), write_in_progress: None, next }
    }

    /// Completes when a draft of the current output is due. Never completes if that output is written.
    pub(super) async fn due(&mut self, length: Length) {
        if length == self.written {
            return std::future::pending().await;
        }
        let unwritten = length.bytes.saturating_sub(self.written.bytes);
        if unwritten < BYTES.max(length.bytes / SHARE) {
            sleep_until(self.next).await;
        }
        if let Some(write_in_progress) = &mut self.write_in_progress {
            // After a failed draft, the next one is written all the same.
            let _ended = write_in_progress.await;
            self.write_in_progress = None;
        }
    }

    /// Starts a task that writes these parts.
    pub(super) fn write(&mut self, length: Length, parts: Vec<Part>) {
        self.written = length;
        let times = u32::try_from(length.bytes / PAUSE_BYTES).unwrap_or(u32::MAX).saturating_add(1);
        self.next = Instant::now() + PAUSE.saturating_mul(times);
        let (store, step) = (self.store.clone(), self.step.clone());
        self.write_in_progress = Some(self.tasks.spawn(async move {
            if let Err(error) = keep(&store, &step, &parts).await {
                tracing::warn!(%error, "could not store a draft");
            }
        }));
    }
}

async fn keep(store: &Store, step: &OpenStep, parts: &[Part]) -> Result<(), StoreError> {
    let write = store.write().await?;
    write.draft_step(step, parts).await?;
    write.commit().await
}
