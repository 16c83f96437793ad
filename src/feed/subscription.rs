//! One subscription to the feed.

use super::{Batch, Feed};
use holdpoint_core::event::Event;
use holdpoint_store::{EventFilter, EventReader, EventsRead, Range};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// The number of events per read. Each event may be as large as the inputs of a call may be.
const PAGE: u64 = 16;
/// The pause of a subscription if the database does not answer.
const REST: Duration = Duration::from_secs(1);

/// The events after some number that one reader may see.
#[derive(Debug)]
pub(crate) struct Subscription {
    feed: Feed,
    reader: EventReader,
    about: EventFilter,
    batches: broadcast::Receiver<Arc<Batch>>,
    /// Numbered events up to the first number are read. There may be more up to the second number.
    ahead: Range,
    /// Whether batches were missed since the last batch.
    missed: bool,
}

impl Subscription {
    pub(super) fn new(
        feed: Feed,
        reader: EventReader,
        about: EventFilter,
        batches: broadcast::Receiver<Arc<Batch>>,
        ahead: Range,
    ) -> Self {
        Self { feed, reader, about, batches, ahead, missed: false }
    }

    /// Returns the next events, at least one, or `None` when the process stops. Dropping the future loses no
    /// event.
    pub(crate) async fn next(&mut self) -> Option<Vec<Event>> {
        let tasks = self.feed.tasks.clone();
        tokio::select! {
            found = self.find() => Some(found),
            () = tasks.stopping() => None,
        }
    }

    async fn find(&mut self) -> Vec<Event> {
        loop {
            if self.ahead.is_empty() {
                self.wait().await;
                continue;
            }
            match self.read().await {
                Some(EventsRead { events, up_to }) => {
                    // Also if the read found nothing: the same rows are not read again.
                    let last = events.last().map_or(self.ahead.last, |event| event.seq.max(self.ahead.last));
                    self.ahead.after = up_to.unwrap_or(last);
                    if !events.is_empty() {
                        return events;
                    }
                }
                None => tokio::time::sleep(REST).await,
            }
        }
    }

    async fn wait(&mut self) {
        let touched = match self.batches.recv().await {
            Ok(batch) => {
                self.ahead.last = self.ahead.last.max(batch.last);
                self.is_touched(&batch)
            }
            // The events of the missed batches precede the end of the next batch.
            Err(RecvError::Lagged(_)) => {
                self.missed = true;
                return;
            }
            // The feed owns the sender and lives as long as the subscription.
            Err(RecvError::Closed) => return std::future::pending().await,
        };
        if !touched && !self.missed {
            // A read may have gone beyond the last number of that time.
            self.ahead.after = self.ahead.after.max(self.ahead.last);
        }
        self.missed = false;
    }

    /// Whether the batch may contain events for this reader. The rows decide.
    fn is_touched(&self, batch: &Batch) -> bool {
        let Some(touched) = &batch.touched else { return true };
        let principal = &self.reader.principal;
        match self.reader.sees_others() {
            true => touched.has_tenant(&principal.tenant_id),
            false => touched.has(principal),
        }
    }

    /// Returns `None` if the database did not answer.
    async fn read(&self) -> Option<EventsRead> {
        let (feed, reader, about, ahead) = (self.feed.clone(), self.reader.clone(), self.about, self.ahead);
        // In a task: database work must not be dropped midway.
        let reading = self.feed.tasks.spawn(async move {
            let _turn = feed.reads.acquire().await;
            feed.store.urgent_read().await?.events(&reader, &about, ahead, PAGE).await
        });
        match reading.await {
            Ok(Ok(looked)) => Some(looked),
            Ok(Err(error)) if !error.is_unavailable() => {
                tracing::error!(%error, "a subscription could not read events");
                None
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a subscription waits for the database");
                None
            }
            Err(_) => None,
        }
    }
}
