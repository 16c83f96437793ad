//! The sequencer: has events numbered, and notifies the subscriptions of this process.

use super::{Batch, Feed};
use crate::store::{Left, Notification, Notifications, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// The minimum time between the starts of two passes. A pass numbers all events that were committed in
/// between.
const PACE: Duration = Duration::from_millis(50);
/// The interval of the looks for unreported events: a process died before it numbered them, or a notification
/// was lost.
const LOOK: Duration = Duration::from_secs(1);
/// If more events than this are new, every subscription reads for itself.
const TOUCHED_MAX: i64 = 1000;

/// The work that is due.
#[derive(Debug, Clone, Copy)]
enum Due {
    /// A numbering pass.
    Pass,
    /// A look at the events that another process has numbered.
    Look,
}

impl Feed {
    /// Runs until the process stops. Other processes, or the next one, number the events that this process
    /// commits after that.
    pub(crate) async fn keep_going(&self, hints: Option<Notifications>) {
        let (numbered, received) = watch::channel(0);
        let listening = async {
            match hints {
                Some(hints) => self.keep_listening(hints, numbered).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.keep_numbering(received) => {}
            () = listening => {}
            () = self.tasks.stopping() => {}
        }
    }

    async fn keep_numbering(&self, mut received: watch::Receiver<i64>) {
        let (mut known, mut fails) = (0, false);
        let mut next_pass = Instant::now();
        self.store.news().notify_one();
        loop {
            let due = tokio::select! {
                () = self.has_news(next_pass) => Due::Pass,
                () = sleep(LOOK) => Due::Pass,
                () = is_beyond(known, &mut received) => Due::Look,
            };
            if matches!(due, Due::Pass) {
                next_pass = Instant::now() + PACE;
            }
            // In a task: database work must not be dropped midway.
            let feed = self.clone();
            let done = self.tasks.spawn(async move { feed.keep_up(due, known).await }).await;
            match done {
                Ok(Ok((last, left))) => {
                    (known, fails) = (last, false);
                    if left == Left::More {
                        next_pass = Instant::now();
                    }
                    if left != Left::Nothing {
                        self.store.news().notify_one();
                    }
                }
                Ok(Err(error)) if !fails => {
                    tracing::warn!(%error, "could not number events");
                    fails = true;
                }
                Ok(Err(_)) => {}
                Err(error) => tracing::error!(panicked = error.is_panic(), "the numbering task failed"),
            }
        }
    }

    /// Completes when this process has committed events, but not before `earliest`.
    async fn has_news(&self, earliest: Instant) {
        sleep_until(earliest).await;
        self.store.news().notified().await;
    }

    /// Does the due work and notifies subscriptions of events after `known`. Returns the last number, and
    /// which events are left.
    async fn keep_up(&self, due: Due, known: i64) -> Result<(i64, Left), StoreError> {
        if matches!(due, Due::Look) {
            return Ok((self.look(known).await?, Left::Nothing));
        }
        let pass = self.store.number_events().await?;
        if pass.before != known {
            // Another process has numbered events since.
            return Ok((self.look(known).await?, pass.left));
        }
        if pass.last > known {
            self.notify(pass.last, Some(pass.touched));
        }
        Ok((pass.last, pass.left))
    }

    /// Notifies subscriptions of events after `known`. Returns the last number.
    async fn look(&self, known: i64) -> Result<i64, StoreError> {
        let read = self.store.urgent_read().await?;
        let last = read.numbered().await?.last;
        if last > known && self.batches.receiver_count() > 0 {
            let touched = match last - known <= TOUCHED_MAX {
                true => Some(read.touched_since(known).await?),
                false => None,
            };
            self.notify(last, touched);
        }
        Ok(last)
    }

    fn notify(&self, last: i64, touched: Option<Vec<(String, String)>>) {
        let touched = touched.map(|touched| touched.into_iter().collect());
        // There may be no subscriptions.
        let _listeners = self.batches.send(Arc::new(Batch { last, touched }));
    }

    async fn keep_listening(&self, mut hints: Notifications, numbered: watch::Sender<i64>) {
        let mut fails = false;
        loop {
            match hints.next().await {
                Ok(received) => {
                    fails = false;
                    match received {
                        Notification::Listening => self.store.news().notify_one(),
                        Notification::Numbered(last) => drop(numbered.send_replace(last)),
                    }
                }
                Err(error) => {
                    if !fails {
                        tracing::warn!(%error, "no notifications from other processes; polling");
                    }
                    fails = true;
                    sleep(LOOK).await;
                }
            }
        }
    }
}

/// Completes when a notification reports a number beyond `known`.
async fn is_beyond(known: i64, received: &mut watch::Receiver<i64>) {
    while received.changed().await.is_ok() {
        if *received.borrow_and_update() > known {
            return;
        }
    }
    // Without a listener there are no notifications.
    std::future::pending().await
}
