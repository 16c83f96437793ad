//! Drafts of a step: its output so far, stored now and then. A draft outlives the process, and other
//! processes tail it.
//!
//! The model never waits for a draft, and no transaction waits for the model. A background task writes the
//! drafts of all steps: while one transaction writes, the next drafts wait, and the transaction after it writes them
//! together. After a failed draft, the next one is written as usual.

use super::Tasks;
use holdpoint_core::message::Part;
use holdpoint_store::{Draft, OpenStep, Store, StoreError};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::Span;

/// A draft is due when output is unwritten for `PAUSE`, or when `BYTES` of it are unwritten. In a long step
/// the size limit is 1/`SHARE` of the step. So the total of the writes grows in proportion to the step,
/// although each draft contains the whole step.
const PAUSE: Duration = Duration::from_secs(1);
const BYTES: usize = 2 << 10;
const SHARE: usize = 4;
/// The pause grows by one `PAUSE` for every `PAUSE_BYTES` of the draft. This limits the writes for slow
/// output too.
const PAUSE_BYTES: usize = 64 << 10;

/// The most drafts that one transaction writes, and the most bytes of more than one draft.
const DRAFTS_PER_WRITE: usize = 64;
const BYTES_PER_WRITE: usize = 1 << 20;

/// The length of a step so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Length {
    pub(super) parts: usize,
    /// Bytes of text, reasoning and files.
    pub(super) bytes: usize,
}

/// Writes the drafts of all steps of this process, one transaction at a time.
#[derive(Debug)]
pub(super) struct DraftWriter {
    store: Store,
    tasks: Tasks,
    queue: Mutex<Queue>,
}

/// The drafts to write. A step has at most one of them.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// The task that writes the drafts. It ends when none waits.
    task: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Waiting {
    draft: Draft,
    bytes: usize,
    /// Dropped after the write.
    written: oneshot::Sender<()>,
}

impl DraftWriter {
    pub(super) fn new(store: Store, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { store, tasks, queue: Mutex::default() })
    }

    /// Writes a draft soon. The result completes after the write, or after its failure.
    fn write(self: &Arc<Self>, draft: Draft, bytes: usize) -> oneshot::Receiver<()> {
        let (written, ended) = oneshot::channel();
        let mut queue = self.queue.lock();
        queue.waiting.push_back(Waiting { draft, bytes, written });
        // A task that failed has finished too.
        if queue.task.as_ref().is_none_or(JoinHandle::is_finished) {
            let writer = self.clone();
            // The task is not part of the turn that starts it.
            let task = Span::none().in_scope(|| self.tasks.spawn(async move { writer.run().await }));
            queue.task = Some(task);
        }
        ended
    }

    async fn run(&self) {
        loop {
            let (drafts, written) = self.take();
            if drafts.is_empty() {
                return;
            }
            self.store_all(&drafts).await;
            drop(written);
        }
    }

    /// Takes the drafts of the next transaction. The task ends when there are none.
    fn take(&self) -> (Vec<Draft>, Vec<oneshot::Sender<()>>) {
        let (mut drafts, mut written, mut total) = (Vec::new(), Vec::new(), 0_usize);
        let mut queue = self.queue.lock();
        while drafts.len() < DRAFTS_PER_WRITE
            && let Some(next) = queue.waiting.pop_front_if(|next| {
                total = total.saturating_add(next.bytes);
                drafts.is_empty() || total <= BYTES_PER_WRITE
            })
        {
            drafts.push(next.draft);
            written.push(next.written);
        }
        if drafts.is_empty() {
            queue.task = None;
        }
        (drafts, written)
    }

    /// Stores drafts together, or each of its own if the database refuses one of them.
    async fn store_all(&self, drafts: &[Draft]) {
        match self.try_store(drafts).await {
            Ok(()) => {}
            Err(error) if drafts.len() == 1 || error.is_unavailable() => {
                tracing::warn!(%error, drafts = drafts.len(), "could not store drafts");
            }
            Err(_) => {
                for draft in drafts {
                    if let Err(error) = self.try_store(slice::from_ref(draft)).await {
                        tracing::warn!(%error, "could not store a draft");
                    }
                }
            }
        }
    }

    async fn try_store(&self, drafts: &[Draft]) -> Result<(), StoreError> {
        let write = self.store.write().await?;
        write.draft_steps(drafts).await?;
        write.commit().await
    }
}

#[derive(Debug)]
pub(super) struct Drafts {
    writer: Arc<DraftWriter>,
    step: OpenStep,
    written: Length,
    write_in_progress: Option<oneshot::Receiver<()>>,
    /// When the next draft is due, whatever its length.
    next: Instant,
}

impl Drafts {
    pub(super) fn of(step: OpenStep, writer: Arc<DraftWriter>) -> Self {
        let next = Instant::now() + PAUSE;
        Self { writer, step, written: Length::default(), write_in_progress: None, next }
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
            // The writer sends nothing. After a failed draft, the next one is written even so.
            let _ended = write_in_progress.await;
            self.write_in_progress = None;
        }
    }

    /// Lets the writer store these parts.
    pub(super) fn write(&mut self, length: Length, parts: Vec<Part>) {
        self.written = length;
        let times = u32::try_from(length.bytes / PAUSE_BYTES).unwrap_or(u32::MAX).saturating_add(1);
        self.next = Instant::now() + PAUSE.saturating_mul(times);
        let draft = Draft { step: self.step.clone(), parts };
        self.write_in_progress = Some(self.writer.write(draft, length.bytes));
    }
}
