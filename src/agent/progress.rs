//! Stores what tools report about their progress. Most reports are not stored: the last one of each pause is, and the last
//! one of all, in the transaction of the outcome.

use super::tasks::Tasks;
use holdpoint_core::call::Execution;
use holdpoint_core::card::progress::pause;
use holdpoint_core::id::ToolCallId;
use holdpoint_store::waited::WaitedTime;
use holdpoint_store::{Store, StoreError, Write};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long the first report of a pause waits for the next ones.
const MORE: Duration = Duration::from_secs(1);

/// Stores the reports of an execution until this future is dropped.
pub(super) async fn keep_reports(
    store: &Store,
    tasks: &Tasks,
    call: ToolCallId,
    execution: Execution,
    waited: &WaitedTime,
) -> Infallible {
    let began = Instant::now();
    loop {
        waited.has_unstored().await;
        sleep(MORE).await;
        let Some((report, progress)) = waited.unstored() else { continue };
        let store = store.clone();
        // In a task of its own: this future may be dropped at any time, and a write may not.
        let written = tasks.spawn(async move {
            let write = store.urgent_write().await?;
            write.report_progress(call, execution, &progress).await?;
            write.commit().await
        });
        match written.await {
            Ok(Ok(())) => waited.stored(report),
            Ok(Err(error)) => tracing::warn!(%error, "could not store a report of progress"),
            Err(_broken) => {}
        }
        sleep(pause(began.elapsed())).await;
    }
}

/// The last report of an execution, for the transaction of its outcome.
pub(super) struct LastReport<'a> {
    waited: &'a WaitedTime,
    is_tried: AtomicBool,
}

impl<'a> LastReport<'a> {
    pub(super) const fn of(waited: &'a WaitedTime) -> Self {
        Self { waited, is_tried: AtomicBool::new(false) }
    }

    /// Stores the report if it is not stored. Only once, so that it keeps no outcome from being stored.
    pub(super) async fn store(
        &self,
        write: &Write,
        call: ToolCallId,
        execution: Execution,
    ) -> Result<(), StoreError> {
        match self.waited.unstored().filter(|_| !self.is_tried.swap(true, Ordering::Relaxed)) {
            Some((_, progress)) => write.report_progress(call, execution, &progress).await,
            None => Ok(()),
        }
    }
}
