//! Polling for a condition, with a deadline.

use std::time::{Duration, Instant};

/// The time after which a condition counts as never true.
const DEADLINE: Duration = Duration::from_secs(120);
/// The time between two polls.
const REST: Duration = Duration::from_millis(10);

/// Polls until `look` returns a value.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(started.elapsed() < DEADLINE, "waited in vain: {what}");
        tokio::time::sleep(REST).await;
    }
}
