//! The sequencer: has events numbered, and notifies the subscriptions of this process.

use super::{Batch, Feed};
use holdpoint_store::{AffectedReaders, Notification, Notifications, StoreError, UnnumberedEvents};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// The minimum time between the starts of two passes. A pass numbers all events that were committed in
/// between.
const PACE: Duration = Duration::from_millis(50);
/// The interval of the looks for the events of other processes, without notifications from these.
const LOOK: Duration = Duration::from_secs(1);
/// The same with notifications. Then only a process that died before it numbered its last events, or a
/// connection that broke unnoticed, leaves events to find.
const LOOK_LISTENING: Duration = Duration::from_secs(3);
/// If more events than this are new, every subscription reads for itself.
const TOUCHED_MAX: i64 = 1000;

/// The work that is due.
#[derive(Debug, Clone, Copy)]
enum DueWork {
    Pass,
    /// A look at the events that another process has numbered.
    Look,
    /// The same, and a pass if events lack numbers, because their process may be dead.
    Poll,
}

/// What the notifications from other processes report.
#[derive(Debug, Clone, Copy, Default)]
struct Notified {
    /// The last number of which a notification arrived.
    last: i64,
    /// Whether this process receives notifications.
    listens: bool,
}

impl Feed {
    /// Runs until the process stops. Other processes, or the next one, number the events that this process
    /// commits after that.
    pub(crate) async fn run_sequencer(&self, hints: Option<Notifications>) {
        let (notify, notified) = watch::channel(Notified::default());
        let listening = async {
            match hints {
                Some(hints) => self.run_listener(hints, notify).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.run_numbering(notified) => {}
            () = listening => {}
            () = self.tasks.stopping() => {}
        }
    }

    async fn run_numbering(&self, mut notified: watch::Receiver<Notified>) {
        let (mut known, mut fails) = (0, false);
        let mut next_pass = Instant::now();
        self.store.committed_signal().notify_one();
        loop {
            // After a failure the events of this process may lack numbers.
            let look = if notified.borrow().listens && !fails { LOOK_LISTENING } else { LOOK };
            let due = tokio::select! {
                () = self.has_events(next_pass) => DueWork::Pass,
                () = sleep(look) => DueWork::Poll,
                due = next_notification(known, &mut notified) => due,
            };
            if matches!(due, DueWork::Pass) {
                next_pass = Instant::now() + PACE;
            }
            // In a task: database work must not be dropped midway.
            let feed = self.clone();
            let done = self.tasks.spawn(async move { feed.catch_up(due, known).await }).await;
            match done {
                Ok(Ok((last, left))) => {
                    (known, fails) = (last, false);
                    if left == UnnumberedEvents::More {
                        next_pass = Instant::now();
                    }
                    if left != UnnumberedEvents::Nothing {
                        self.store.committed_signal().notify_one();
                    }
                }
                Ok(Err(error)) => {
                    if !fails {
                        tracing::warn!(%error, "could not number events");
                    }
                    fails = true;
                }
                Err(error) => {
                    tracing::error!(panicked = error.is_panic(), "the numbering task failed");
                    fails = true;
                }
            }
        }
    }

    /// Completes when this process has committed events, but not before `earliest`.
    async fn has_events(&self, earliest: Instant) {
        sleep_until(earliest).await;
        self.store.committed_signal().notified().await;
    }

    /// Does the due work and notifies subscriptions of events after `known`. Returns the last number, and
    /// which events are left.
    async fn catch_up(&self, due: DueWork, known: i64) -> Result<(i64, UnnumberedEvents), StoreError> {
        let (last, touched, left) = match due {
            DueWork::Pass => {
                let pass = self.store.number_events().await?;
                // Otherwise another process, or a transaction on SQLite, has numbered events since.
                let touched = (pass.before == known).then_some(pass.touched);
                (pass.last, touched, pass.left)
            }
            DueWork::Look | DueWork::Poll => {
                let found = self.store.read_once().await?.numbered().await?;
                let is_left = found.unnumbered && matches!(due, DueWork::Poll);
                (found.last, None, if is_left { UnnumberedEvents::All } else { UnnumberedEvents::Nothing })
            }
        };
        if last > known && self.batches.receiver_count() > 0 {
            let touched = match touched {
                Some(touched) => Some(touched),
                None if last - known <= TOUCHED_MAX => {
                    Some(self.store.read_once().await?.touched_since(known).await?)
                }
                None => None,
            };
            self.notify(last, touched);
        }
        Ok((last, left))
    }

    fn notify(&self, last: i64, touched: Option<AffectedReaders>) {
        // There may be no subscriptions.
        let _listeners = self.batches.send(Arc::new(Batch { last, touched }));
    }

    async fn run_listener(&self, mut hints: Notifications, notify: watch::Sender<Notified>) {
        let mut fails = false;
        loop {
            match hints.next().await {
                Ok(received) => {
                    fails = false;
                    match received {
                        Notification::Listening => {
                            notify.send_modify(|notified| notified.listens = true);
                            // Events before this moment were not reported.
                            self.store.committed_signal().notify_one();
                        }
                        Notification::Numbered(last) => notify.send_modify(|notified| notified.last = last),
                    }
                }
                Err(error) => {
                    if !fails {
                        tracing::warn!(%error, "no notifications from other processes; polling");
                    }
                    fails = true;
                    notify.send_modify(|notified| notified.listens = false);
                    sleep(LOOK).await;
                }
            }
        }
    }
}

/// Completes when a notification reports a number beyond `known`, or when the notifications end.
async fn next_notification(known: i64, notified: &mut watch::Receiver<Notified>) -> DueWork {
    let listened = notified.borrow().listens;
    while notified.changed().await.is_ok() {
        let Notified { last, listens } = *notified.borrow_and_update();
        if last > known {
            return DueWork::Look;
        }
        if listened && !listens {
            return DueWork::Poll;
        }
    }
    // Without a listener there are no notifications.
    std::future::pending().await
}
