//! The tasks of this process, and how they end.
//!
//! Requests, turns, tools and database work run in tracked tasks. A connection only reads. Work that stops early stops
//! while it waits for a model, a tool or a client, so no work of the database is dropped halfway.

use std::future::Future;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// The time that aborted work may take to store its state.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);
/// The part of that time that waiting requests may use, so that they still get a response.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The tasks of one process. They own its database work and its tools. A client that disconnects, or a turn
/// that stops, only stops waiting for a task.
#[derive(Debug, Clone)]
pub(crate) struct Tasks {
    tracker: TaskTracker,
    /// Cancelled when nothing new begins.
    stopping: CancellationToken,
    /// Cancelled when running work is aborted.
    aborted: CancellationToken,
    /// What the work uses, which ends after the work.
    background: TaskTracker,
    /// Cancelled when the work has ended.
    over: CancellationToken,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            tracker: TaskTracker::new(),
            stopping: CancellationToken::new(),
            aborted: CancellationToken::new(),
            background: TaskTracker::new(),
            over: CancellationToken::new(),
        }
    }

    /// Runs work to its end, even if its caller stops waiting.
    pub(crate) fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(work.in_current_span())
    }

    /// Runs something that other work uses, until that work has [ended](Self::over).
    pub(crate) fn spawn_background(&self, used: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(used.in_current_span());
    }

    /// Completes when the work of this process has ended.
    pub(crate) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Returns the number of tasks that have not ended.
    #[cfg(test)]
    pub(crate) fn active(&self) -> usize {
        self.tracker.len()
    }

    /// Whether the process is stopping. A stopping process begins no turn and no approved call.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Completes when the process is stopping.
    pub(crate) async fn stopping(&self) {
        self.stopping.cancelled().await;
    }

    /// Whether the grace period is over. Work that runs now ends without an outcome.
    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.is_cancelled()
    }

    /// Completes when the grace period is over.
    pub(crate) async fn aborted(&self) {
        self.aborted.cancelled().await;
    }

    /// Completes when a wait for other work reaches its limit: after `wait`, or soon after the abort.
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

    /// Lets nothing new begin from now on.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// Lets `connections` close and running work finish, for at most `grace`. Then aborts the work that still
    /// runs, which stores that its outcome is unknown.
    pub(crate) async fn finish(&self, grace: Duration, connections: impl Future<Output = ()>) {
        self.stop();
        self.tracker.close();
        self.finish_work(grace, connections).await;
        self.over.cancel();
        self.background.close();
        if tokio::time::timeout(CLEANUP_TIMEOUT, self.background.wait()).await.is_err() {
            tracing::error!("some connections to other servers did not end");
        }
    }

    async fn finish_work(&self, grace: Duration, connections: impl Future<Output = ()>) {
        let finished = async {
            // An open connection can still start a task.
            connections.await;
            self.tracker.wait().await;
        };
        tokio::pin!(finished);
        if tokio::time::timeout(grace, &mut finished).await.is_ok() {
            return;
        }
        tracing::warn!("the grace period is over; aborting the work that still runs");
        self.aborted.cancel();
        if tokio::time::timeout(CLEANUP_TIMEOUT, &mut finished).await.is_err() {
            tracing::error!("some work did not end after the abort");
        }
    }
}
