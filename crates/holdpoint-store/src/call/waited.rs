//! The time that a call waits for people.

use holdpoint_core::card::progress::Progress;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// The time that one execution has waited for answers of people. Its time limits leave this time out.
#[derive(Debug, Clone, Default)]
pub struct WaitedTime(Arc<Mutex<OpenWaits>>);

#[derive(Debug, Default)]
struct OpenWaits {
    /// The number of requests without an answer, and since when there is at least one.
    open: u32,
    since: Option<Instant>,
    /// The time of the waits that are over.
    over: Duration,
    /// The last report of progress: when, and the time of all waits until then.
    reported: Option<(Instant, Duration)>,
    /// How many reports said something, and what the last of them said, until it is stored.
    reports: u64,
    progress: Option<Progress>,
    /// Who waits for the next one.
    waker: Option<Waker>,
}

/// Whether the outcome of one execution is in the database, or its owner: the executor keeps its [`WaitedTime`] until then.
#[derive(Debug)]
pub struct UnsettledExecution(Weak<Mutex<OpenWaits>>);

impl UnsettledExecution {
    /// Whether the execution has no outcome and no owner in the database yet.
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// A wait for an answer. It ends when this value is dropped.
#[derive(Debug)]
pub struct WaitGuard(WaitedTime);

impl WaitedTime {
    /// Begins a wait. Several waits at once count once.
    pub fn begin(&self) -> WaitGuard {
        let mut waits = self.0.lock();
        waits.open = waits.open.saturating_add(1);
        waits.since.get_or_insert_with(Instant::now);
        drop(waits);
        WaitGuard(self.clone())
    }

    /// Returns whether the execution of these waits is settled, without being a part of it.
    pub fn unsettled(&self) -> UnsettledExecution {
        UnsettledExecution(Arc::downgrade(&self.0))
    }

    /// Returns the time of all waits until now.
    pub fn total(&self) -> Duration {
        self.0.lock().total()
    }

    /// The tool has reported progress, and perhaps said something with it.
    pub fn report(&self, progress: Option<Progress>) {
        let mut waits = self.0.lock();
        waits.reported = Some((Instant::now(), waits.total()));
        if let Some(progress) = progress {
            waits.reports = waits.reports.wrapping_add(1);
            waits.progress = Some(progress);
            if let Some(waker) = waits.waker.take() {
                waker.wake();
            }
        }
    }

    /// Returns the last report that is not stored, with its number.
    pub fn unstored(&self) -> Option<(u64, Progress)> {
        let waits = self.0.lock();
        waits.progress.clone().map(|progress| (waits.reports, progress))
    }

    /// Records that the report with this number is stored.
    pub fn stored(&self, report: u64) {
        let mut waits = self.0.lock();
        if waits.reports == report {
            waits.progress = None;
        }
    }

    /// Completes when a report is not stored. Only one may wait.
    pub async fn has_unstored(&self) {
        poll_fn(|context| {
            let mut waits = self.0.lock();
            if waits.progress.is_some() {
                return Poll::Ready(());
            }
            waits.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Returns the time since the last report of progress, without waits. `None` if there was no report.
    pub fn since_report(&self) -> Option<Duration> {
        let waits = self.0.lock();
        let (at, before) = waits.reported?;
        Some(at.elapsed().saturating_sub(waits.total().saturating_sub(before)))
    }
}

impl OpenWaits {
    fn total(&self) -> Duration {
        self.over.saturating_add(self.since.map_or(Duration::ZERO, |since| since.elapsed()))
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut waits = self.0.0.lock();
        waits.open = waits.open.saturating_sub(1);
        if waits.open == 0
            && let Some(since) = waits.since.take()
        {
            waits.over = waits.over.saturating_add(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn only_the_time_of_waits_counts_and_waits_at_once_count_once() {
        let waited = WaitedTime::default();
        assert_eq!(waited.total(), Duration::ZERO);
        let started = Instant::now();
        let (first, second) = (waited.begin(), waited.begin());
        while waited.total() < Duration::from_millis(5) {}
        drop(first);
        while waited.total() < Duration::from_millis(10) {}
        drop(second);
        let total = waited.total();
        assert!(total <= started.elapsed());
        assert_eq!(waited.total(), total, "no wait is open");
    }

    #[test]
    fn the_last_report_waits_until_it_is_stored() {
        let waited = WaitedTime::default();
        let says = |words: &str| waited.report(Progress::new(Some(words), None, None));
        assert_eq!(waited.has_unstored().now_or_never(), None);
        says("first");
        waited.report(None);
        let (first, _) = waited.unstored().unwrap();
        says("second");
        waited.stored(first);
        assert_eq!(waited.has_unstored().now_or_never(), Some(()));
        let (second, progress) = waited.unstored().unwrap();
        assert_eq!(progress.message.as_deref(), Some("second"));
        waited.stored(second);
        assert_eq!(waited.unstored(), None);
    }
}
