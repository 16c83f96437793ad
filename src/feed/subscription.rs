//! One reader of the feed.

use super::{Batch, Feed};
use crate::domain::event::Event;
use crate::store::{About, Page, Reader};
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
    reader: Reader,
    about: About,
    batches: broadcast::Receiver<Arc<Batch>>,
    /// All that has a number up to this one is told, or not for this reader.
    after: i64,
    /// Whether there may be more in the rows.
    behind: bool,
}

impl Subscription {
    pub(super) fn new(
        feed: Feed,
        reader: Reader,
        about: About,
        batches: broadcast::Receiver<Arc<Batch>>,
        after: i64,
    ) -> Self {
        Self { feed, reader, about, batches, after, behind: true }
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
            if !self.behind {
                self.wait().await;
                continue;
            }
            match self.read().await {
                Some(page) => {
                    self.behind = page.has_more;
                    if let Some(last) = page.items.last() {
                        self.after = last.seq;
                        return page.items;
                    }
                }
                None => tokio::time::sleep(REST).await,
            }
        }
    }

    async fn wait(&mut self) {
        let batch = match self.batches.recv().await {
            Ok(batch) => batch,
            Err(RecvError::Lagged(_)) => {
                self.behind = true;
                return;
            }
            // The feed, which sends them, is here too.
            Err(RecvError::Closed) => return std::future::pending().await,
        };
        if self.is_touched(&batch) {
            self.behind = true;
        } else {
            self.after = self.after.max(batch.last);
        }
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
    async fn read(&self) -> Option<Page<Event>> {
        let (feed, reader, about, after) = (self.feed.clone(), self.reader.clone(), self.about, self.after);
        // In a task: database work is not dropped half-way.
        let reading = self.feed.tasks.spawn(async move {
            let _turn = feed.reads.acquire().await;
            feed.store.read().await?.events(&reader, &about, after, PAGE).await
        });
        match reading.await {
            Ok(Ok(page)) => Some(page),
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
