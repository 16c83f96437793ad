//! One reader of the feed.

use super::{Batch, Feed};
use crate::domain::event::Event;
use crate::store::{EventFilter, EventReader, EventsRead, Range};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

/// How many events are read at once: each may have as much in it as a call's inputs may be long.
const PAGE: u64 = 16;
/// How long a reader rests when the database does not answer.
const REST: Duration = Duration::from_secs(1);

/// What happens, as somebody may see it, from some number on.
#[derive(Debug)]
pub(crate) struct Subscription {
    feed: Feed,
    reader: EventReader,
    about: EventFilter,
    batches: broadcast::Receiver<Arc<Batch>>,
    /// What has a number up to the first is read. Up to the second there may be more.
    ahead: Range,
    /// Whether batches were missed since the last one.
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

    /// The next events, at least one; `None` when the process is about to leave. Whoever stops waiting loses none.
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
                    // Also where nothing was found: the same rows are not read again.
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
            // What those batches were about is before the end of the next one.
            Err(RecvError::Lagged(_)) => {
                self.missed = true;
                return;
            }
            // The feed, which sends them, is here too.
            Err(RecvError::Closed) => return std::future::pending().await,
        };
        if !touched && !self.missed {
            // A look may have gone beyond what was known then.
            self.ahead.after = self.ahead.after.max(self.ahead.last);
        }
        self.missed = false;
    }

    /// Whether there may be something in the batch for this reader; the rows say whether there is.
    fn is_touched(&self, batch: &Batch) -> bool {
        let Some(touched) = &batch.touched else { return true };
        let (principal, sees_others) = (&self.reader.principal, self.reader.sees_others());
        touched.iter().any(|(tenant, user)| {
            *tenant == principal.tenant_id && (sees_others || *user == principal.user_id)
        })
    }

    /// `None` if the database did not answer.
    async fn read(&self) -> Option<EventsRead> {
        let (feed, reader, about, ahead) = (self.feed.clone(), self.reader.clone(), self.about, self.ahead);
        // In a task: database work is not dropped half-way.
        let reading = self.feed.tasks.spawn(async move {
            let _turn = feed.reads.acquire().await;
            feed.store.urgent_read().await?.events(&reader, &about, ahead, PAGE).await
        });
        match reading.await {
            Ok(Ok(looked)) => Some(looked),
            Ok(Err(error)) if !error.is_unavailable() => {
                tracing::error!(%error, "a reader of events cannot go on");
                None
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a reader of events waits for the database");
                None
            }
            Err(_) => None,
        }
    }
}
