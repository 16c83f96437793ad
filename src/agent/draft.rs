//! The words of a step while it is written, kept now and then: so they outlive the process, and other processes read
//! along.
//!
//! The model is never waited for it, nor the database for the model: a draft is written beside, one at a time, and one
//! that fails is followed by the next.

use super::Tasks;
use crate::domain::message::Part;
use crate::store::{OpenStep, Store, StoreError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// So long is what is said not written yet, at most, and so many bytes of it are. Of a long step it may be a share of
/// what there is: so what is written in all grows as the step does, although each draft is the whole of it.
const PAUSE: Duration = Duration::from_secs(1);
const BYTES: usize = 2 << 10;
const SHARE: usize = 4;
/// The pause after a draft as long as this is twice as long, and so on: slow words are not written without end either.
const PAUSE_BYTES: usize = 64 << 10;

/// How much there is of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Length {
    pub(super) parts: usize,
    /// Of words, thoughts and files.
    pub(super) bytes: usize,
}

/// The drafts of one step.
#[derive(Debug)]
pub(super) struct Drafts {
    store: Store,
    tasks: Tasks,
    step: OpenStep,
    written: Length,
    under_way: Option<JoinHandle<()>>,
    /// When the next is due, whatever its length.
    next: Instant,
}

impl Drafts {
    pub(super) fn of(step: OpenStep, store: Store, tasks: Tasks) -> Self {
        let next = Instant::now() + PAUSE;
        Self { store, tasks, step, written: Length::default(), under_way: None, next }
    }

    /// Comes back once a draft of what there is should be written; never, if it was.
    pub(super) async fn due(&mut self, length: Length) {
        if length == self.written {
            return std::future::pending().await;
        }
        let unwritten = length.bytes.saturating_sub(self.written.bytes);
        if unwritten < BYTES.max(length.bytes / SHARE) {
            sleep_until(self.next).await;
        }
        if let Some(under_way) = &mut self.under_way {
            // If it broke, the next is written all the same.
            let _ended = under_way.await;
            self.under_way = None;
        }
    }

    /// Has these parts written.
    pub(super) fn write(&mut self, length: Length, parts: Vec<Part>) {
        self.written = length;
        let times = u32::try_from(length.bytes / PAUSE_BYTES).unwrap_or(u32::MAX).saturating_add(1);
        self.next = Instant::now() + PAUSE.saturating_mul(times);
        let (store, step) = (self.store.clone(), self.step.clone());
        self.under_way = Some(self.tasks.spawn(async move {
            if let Err(error) = keep(&store, &step, &parts).await {
                tracing::warn!(%error, "a draft could not be kept");
            }
        }));
    }
}

async fn keep(store: &Store, step: &OpenStep, parts: &[Part]) -> Result<(), StoreError> {
    let write = store.write().await?;
    write.draft_step(step, parts).await?;
    write.commit().await
}
