//! The time that a call waits for people.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The time that one execution has waited for answers of people. Its time limits leave this time out.
#[derive(Debug, Clone, Default)]
pub struct Waited(Arc<Mutex<Waits>>);

#[derive(Debug, Default)]
struct Waits {
    /// The number of requests without an answer, and since when there is at least one.
    open: u32,
    since: Option<Instant>,
    /// The time of the waits that are over.
    over: Duration,
    /// The last report of progress: when, and the time of all waits until then.
    reported: Option<(Instant, Duration)>,
}

/// Whether the outcome of one execution is in the database, or its owner: the executor keeps its [`Waited`] until then.
#[derive(Debug)]
pub struct Unsettled(Weak<Mutex<Waits>>);

impl Unsettled {
    /// Whether the execution has no outcome and no owner in the database yet.
    pub fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// A wait for an answer. It ends when this value is dropped.
#[derive(Debug)]
pub struct WaitGuard(Waited);

impl Waited {
    /// Begins a wait. Several waits at once count once.
    pub fn begin(&self) -> WaitGuard {
        let mut waits = self.0.lock();
        waits.open = waits.open.saturating_add(1);
        waits.since.get_or_insert_with(Instant::now);
        drop(waits);
        WaitGuard(self.clone())
    }

    /// Returns whether the execution of these waits is settled, without being a part of it.
    pub fn unsettled(&self) -> Unsettled {
        Unsettled(Arc::downgrade(&self.0))
    }

    /// Returns the time of all waits until now.
    pub fn total(&self) -> Duration {
        self.0.lock().total()
    }

    /// The tool has reported progress.
    pub fn report(&self) {
        let mut waits = self.0.lock();
        waits.reported = Some((Instant::now(), waits.total()));
    }

    /// Returns the time since the last report of progress, without waits. `None` if there was no report.
    pub fn since_report(&self) -> Option<Duration> {
        let waits = self.0.lock();
        let (at, before) = waits.reported?;
        Some(at.elapsed().saturating_sub(waits.total().saturating_sub(before)))
    }
}

impl Waits {
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

    #[test]
    fn only_the_time_of_waits_counts_and_waits_at_once_count_once() {
        let waited = Waited::default();
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
}
