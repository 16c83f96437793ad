//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

/// How long a condition may take to come true.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long to rest between two looks.
const REST: Duration = Duration::from_millis(10);

/// Looks again and again until there is something to see.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "waited in vain: {what}");
        tokio::time::sleep(REST).await;
    }
}
