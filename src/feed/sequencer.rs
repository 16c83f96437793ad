//! What sees to it that events get their numbers, and says so to whoever reads here.

use super::{Batch, Feed};
use crate::store::{Hints, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often it is looked for what nobody said here: another process died before it gave numbers, or its word was lost.
const LOOK: Duration = Duration::from_secs(1);
/// Where more is new than this, every subscription looks for itself.
const TOUCHED_MAX: i64 = 1000;

impl Feed {
    /// Goes on until the process is about to leave. What it commits then is numbered by the others, or the next.
    pub(crate) async fn keep_going(&self, hints: Option<Hints>) {
        let listening = async {
            match hints {
                Some(hints) => self.keep_listening(hints).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.keep_numbering() => {}
            () = listening => {}
            () = self.tasks.stopping() => {}
        }
    }

    async fn keep_numbering(&self) {
        let (mut known, mut fails) = (0, false);
        loop {
            // In a task: database work is not dropped half-way.
            let feed = self.clone();
            let told = self.tasks.spawn(async move { feed.number_and_tell(known).await }).await;
            match told {
                Ok(Ok(last)) => (known, fails) = (last, false),
                Ok(Err(error)) if !fails => {
                    tracing::warn!(%error, "events could not be numbered");
                    fails = true;
                }
                Ok(Err(_)) => {}
                Err(error) => tracing::error!(panicked = error.is_panic(), "the numbering of events broke"),
            }
            tokio::select! {
                () = self.store.news().notified() => {}
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Numbers what has none, and tells what is new since this number. The last one.
    async fn number_and_tell(&self, known: i64) -> Result<i64, StoreError> {
        let read = self.store.read().await?;
        let found = read.numbered().await?;
        drop(read);
        let last = if found.unnumbered { self.store.number_events().await? } else { found.last };
        if last <= known || self.batches.receiver_count() == 0 {
            return Ok(last);
        }
        let touched = match last - known <= TOUCHED_MAX {
            true => Some(self.store.read().await?.touched_since(known).await?.into_iter().collect()),
            false => None,
        };
        // Whoever listened may have left.
        let _listeners = self.batches.send(Arc::new(Batch { last, touched }));
        Ok(last)
    }

    async fn keep_listening(&self, mut hints: Hints) {
        let mut fails = false;
        loop {
            match hints.next().await {
                Ok(()) => {
                    fails = false;
                    self.store.news().notify_one();
                }
                Err(error) => {
                    if !fails {
                        tracing::warn!(%error, "nothing is heard of other processes; their events are looked for");
                    }
                    fails = true;
                    sleep(LOOK).await;
                }
            }
        }
    }
}
