//! The feed: pushes events to every subscriber that may see them, in the order of their numbers, without gaps
//! or repeats.
//!
//! ```text
//! commit ─► signal ─► sequencer: numbers events in passes, notifies other processes (Postgres)
//!                      └─► batch: the last number, and the threads ─► each subscription reads its rows
//! ```
//!
//! The rows are the source of the events, and a batch only announces them. A notification may be lost, so the
//! sequencer also polls.
//!
//! # One event
//!
//! 1. `Write::event` of the store adds the event to the transaction of the change. The row holds hashes. Readers get
//!    inputs, with masks in place of secrets, and reasons, from the call.
//! 2. `Write::commit` inserts the events with one statement, without numbers, and commits. On SQLite the transaction
//!    numbers its own events first. On Postgres a pass numbers events after the commit, so that a long transaction
//!    cannot insert a low number late.
//! 3. The sequencer (`Feed::run_numbering`) runs the passes (`Store::number_events`) after commits of this process, at
//!    most every 50 ms. A pass is one statement. It locks the one row of `event_sequence` and numbers up to 1000
//!    events, in the order of their insertion. After a full pass the next one starts at once. A pass gives no number if
//!    another process numbers, or has numbered since the moment whose rows the statement sees. For events of dead
//!    processes one statement looks every second, or every three seconds while notifications arrive.
//! 4. The commit of a pass notifies the other processes. Subscriptions of the same process get a `Batch` directly. A
//!    batch only means that reading may pay; the rows are the truth.
//! 5. `Subscription::next` reads the rows that the subscriber may see (`Read::events`). One index serves each filter:
//!    call, run, thread, session, user, tenant, or held tool. One statement reads at most ten rows per requested event
//!    and reports how far it read. The columns `user_id` and `held_tool` of an event only serve the indexes; thread and
//!    call determine the visibility.
//! 6. The routes write the events. A request for the events of a run or a call, and a subscription without a start,
//!    first run one pass if events lack numbers (`Feed::read`). Passes, and the reads of subscriptions, use the
//!    reserved connections one at a time.

mod sequencer;
mod subscription;
mod tenant_signal;

pub(crate) use subscription::Subscription;
pub(crate) use tenant_signal::TenantSignal;

use crate::agent::Tasks;
use holdpoint_store::{AffectedReaders, EventFilter, EventReader, Range, Read, Store, StoreError};
use std::sync::Arc;
use tokio::sync::{Semaphore, broadcast};

/// The number of batches that a subscription may lag by. A subscription that lags further just reads.
const BATCHES: usize = 256;
/// The number of concurrent reads by subscriptions of this process. They use the connections for urgent work.
const READS: usize = 1;

/// New events.
#[derive(Debug)]
struct Batch {
    /// All events up to this number have their numbers.
    last: i64,
    /// Whom the new events touch; `None` if unknown.
    touched: Option<AffectedReaders>,
}

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

    /// Returns a view in which every matching event that was committed before has its number. If an event
    /// lacks its number, one numbering pass runs first. Under contention that pass may leave some events to
    /// the sequencer.
    pub(crate) async fn read(&self, about: &EventFilter) -> Result<Read, StoreError> {
        let read = self.store.read().await?;
        if !read.lacks_numbers(about).await? {
            return Ok(read);
        }
        drop(read);
        self.store.number_events_in_turn().await?;
        self.store.read().await
    }

    /// Subscribes to the events after this number, or from now on.
    pub(crate) async fn subscribe(
        &self,
        reader: EventReader,
        about: EventFilter,
        after: Option<i64>,
    ) -> Result<Subscription, StoreError> {
        // Before the read of the rows: an event that gets its number in between is in a batch.
        let batches = self.batches.subscribe();
        let read = match after {
            Some(_) => self.store.read().await?,
            None => self.read(&EventFilter::default()).await?,
        };
        let last = read.numbered().await?.last;
        // A number that was never assigned belongs to lost rows: a backup was restored.
        let after = after.map_or(last, |after| after.min(last));
        Ok(Subscription::new(self.clone(), reader, about, batches, Range { after, last }))
    }

    /// Returns a signal for new events of a tenant, from now on.
    pub(crate) fn tenant_signal(&self, tenant_id: &str) -> TenantSignal {
        TenantSignal::new(tenant_id.to_owned(), self.batches.subscribe())
    }
}
