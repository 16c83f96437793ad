//! What this process has under way, and how that comes to an end.

use crate::domain::id::{RunId, ToolCallId};
use std::future::Future;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// How long what was cut off may take to write down how it stands.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of that those who wait for it may use, so that they can still be answered.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// How often somebody who waits for what another process may do looks whether it has.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Wishes that a heartbeat may be behind by; one that is further behind just looks.
const WAKE_CAPACITY: usize = 64;

/// What is done under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// The turn of a run.
    Turn(RunId),
    /// The execution of a call.
    Call(ToolCallId),
}

impl Work {
    /// The word of its kind, for metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Turn(_) => "turn",
            Self::Call(_) => "call",
        }
    }
}

/// The tasks of one process. They own its database work and its tools: a client that goes away, or a turn that
/// is stopped, only stops waiting for one.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    /// Nothing new is begun.
    stopping: CancellationToken,
    /// What still runs is given up.
    aborted: CancellationToken,
    /// What somebody here wishes to end, so that whoever holds its lease looks now.
    wake: broadcast::Sender<Work>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            tracker: TaskTracker::new(),
            stopping: CancellationToken::new(),
            aborted: CancellationToken::new(),
            wake: broadcast::Sender::new(WAKE_CAPACITY),
        }
    }

    /// Runs it to its end, whoever waits for it or not.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(work.in_current_span())
    }

    /// How many are not at their end.
    #[cfg(test)]
    pub(crate) fn active(&self) -> usize {
        self.tracker.len()
    }

    /// Whether the process is about to leave: it begins no turn and no approved call any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Comes back once the process is about to leave.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Whether the grace time is over: what runs now ends without an outcome.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.is_cancelled()
    }

    /// Comes back once that is so.
    pub(crate) async fn aborted(&self) {
        self.aborted.cancelled().await;
    }

    /// Comes back when somebody has waited long enough for what others do: after `wait`, or soon after the cut.
    pub(crate) async fn wait_limit(&self, wait: Duration) {
        let cut = async {
            self.aborted().await;
            tokio::time::sleep(REPLY_TIMEOUT).await;
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = cut => {}
        }
    }

    /// Has whoever does this work here look whether it should end.
    pub(crate) fn wake(&self, work: Work) {
        // Nobody does any here, perhaps.
        let _listeners = self.wake.send(work);
    }

    /// Learns of every such wish from now on.
    pub(crate) fn wake_signals(&self) -> broadcast::Receiver<Work> {
        self.wake.subscribe()
    }

    /// Begins nothing new from now on.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Lets what is under way, and `others`, finish for at most `grace`; then gives up what still runs, which
    /// writes down that nobody knows its outcome.
    pub(crate) async fn finish(&self, grace: Duration, others: impl Future<Output = ()>) {
        self.stop();
        self.tracker.close();
        let finished = async {
            tokio::join!(others, self.tracker.wait());
        };
        tokio::pin!(finished);
        if tokio::time::timeout(grace, &mut finished).await.is_ok() {
            return;
        }
        tracing::warn!("the grace time is over; what still runs is given up");
        self.aborted.cancel();
        if tokio::time::timeout(CLEANUP_TIMEOUT, &mut finished).await.is_err() {
            tracing::error!("some work could not be brought to an end");
        }
    }
}
