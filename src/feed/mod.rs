//! The feed: what happens, told to whoever may see it, in the order of its numbers, nothing skipped and nothing twice.
//!
//! ```text
//! commit ─► news ─► sequencer: numbers what is committed, a pass at a time, and notifies the other processes (Postgres)
//!                      └─► batch: up to which number, in whose threads ─► each subscription reads its own from the rows
//! ```
//!
//! The rows are what is told, and a batch only says that it is worth looking. A notification may be lost, so the sequencer
//! also looks by itself.

mod sequencer;
mod subscription;

pub(crate) use subscription::Subscription;

use crate::agent::Tasks;
use crate::store::{EventFilter, EventReader, Range, Read, Store, StoreError};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::{Semaphore, broadcast};

/// Batches that a subscription may be behind by; one that is further behind just reads.
const BATCHES: usize = 256;
/// How many subscriptions of this process read at the same time: they use connections for what is urgent.
const READS: usize = 1;

/// What is new.
#[derive(Debug)]
struct Batch {
    /// All events up to this one have their numbers.
    last: i64,
    /// The tenants and users in whose threads something happened; `None` if nobody has looked.
    touched: Option<HashSet<(String, String)>>,
}

/// The feed of one server.
#[derive(Debug, Clone)]
pub(crate) struct Feed {
    store: Store,
    tasks: Tasks,
    batches: broadcast::Sender<Arc<Batch>>,
    reads: Arc<Semaphore>,
}

impl Feed {
    pub(crate) fn new(store: Store, tasks: Tasks) -> Self {
        let (batches, reads) = (broadcast::Sender::new(BATCHES), Arc::new(Semaphore::new(READS)));
        Self { store, tasks, batches, reads }
    }

    /// A view in which the events of this that were committed before have their numbers. Where one lacks it there is one
    /// pass first, and no more: in a crowd it may leave some to the sequencer.
    pub(crate) async fn read(&self, about: &EventFilter) -> Result<Read, StoreError> {
        let read = self.store.read().await?;
        if !read.lacks_numbers(about).await? {
            return Ok(read);
        }
        drop(read);
        self.store.number_events_in_turn().await?;
        self.store.read().await
    }

    /// What happens from this number on, or from now on.
    pub(crate) async fn subscribe(
        &self,
        reader: EventReader,
        about: EventFilter,
        after: Option<i64>,
    ) -> Result<Subscription, StoreError> {
        // Before the look at the rows: what gets its number between them is in a batch.
        let batches = self.batches.subscribe();
        let read = match after {
            Some(_) => self.store.read().await?,
            None => self.read(&EventFilter::default()).await?,
        };
        let last = read.numbered().await?.last;
        // A number that was never given is of rows that are gone: a backup stands in their place.
        let after = after.map_or(last, |after| after.min(last));
        Ok(Subscription::new(self.clone(), reader, about, batches, Range { after, last }))
    }
}
