//! Has events numbered, and tells the readers of this process.

use super::{Batch, Feed};
use crate::store::{Left, Notification, Notifications, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// The least time from the beginning of a pass to that of the next, which numbers all that was committed between.
const PACE: Duration = Duration::from_millis(50);
/// How often to look for what no process reported: one died before it gave numbers, or a notification was lost.
const LOOK: Duration = Duration::from_secs(1);
/// Where more is new than this, every subscription looks for itself.
const TOUCHED_MAX: i64 = 1000;

/// What is to be done.
#[derive(Debug, Clone, Copy)]
enum Due {
    /// A pass.
    Pass,
    /// A look at what another process has numbered.
    Look,
}

impl Feed {
    /// Goes on until the process is about to leave. What it commits then is numbered by the others, or the next.
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
            // In a task: database work is not dropped half-way.
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
                    tracing::warn!(%error, "events could not be numbered");
                    fails = true;
                }
                Ok(Err(_)) => {}
                Err(error) => tracing::error!(panicked = error.is_panic(), "the numbering of events broke"),
            }
        }
    }

    /// Comes back when this process has committed events, but not before this time.
    async fn has_news(&self, earliest: Instant) {
        sleep_until(earliest).await;
        self.store.news().notified().await;
    }

    /// Does what is due, and tells what is new since this number: the last one, and what is left.
    async fn keep_up(&self, due: Due, known: i64) -> Result<(i64, Left), StoreError> {
        if matches!(due, Due::Look) {
            return Ok((self.look(known).await?, Left::Nothing));
        }
        let pass = self.store.number_events().await?;
        if pass.before != known {
            // Another process has numbered since.
            return Ok((self.look(known).await?, pass.left));
        }
        if pass.last > known {
            self.notify(pass.last, Some(pass.touched));
        }
        Ok((pass.last, pass.left))
    }

    /// Tells what is new since this number. The last one.
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
        // All readers may have left.
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
                        tracing::warn!(%error, "nothing is heard of other processes; their events are looked for");
                    }
                    fails = true;
                    sleep(LOOK).await;
                }
            }
        }
    }
}

/// Comes back when a number is heard of that is beyond this one.
async fn is_beyond(known: i64, received: &mut watch::Receiver<i64>) {
    while received.changed().await.is_ok() {
        if *received.borrow_and_update() > known {
            return;
        }
    }
    // Without one that listens nothing is heard.
    std::future::pending().await
}
