//! Waiting for rows that another task or another process changes.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// The polling interval of a wait for another process.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A wait that looks at the rows again and again, up to a limit.
///
/// ```text
/// let mut wait = Wait::until(limit);
/// loop {
///     look;
///     if it is over || wait.is_last_look() { return }
///     wait.for_next_look(woken).await;
/// }
/// ```
///
/// The caller looks, so the limit never drops database work midway. No transaction should be open between two
/// looks.
pub(crate) struct Wait<L> {
    limit: Pin<Box<L>>,
    interval: Duration,
    is_last_look: bool,
}

impl<L: Future<Output = ()>> Wait<L> {
    /// Returns a wait whose last look is the one after the completion of `limit`.
    pub(crate) fn until(limit: L) -> Self {
        Self { limit: Box::pin(limit), interval: POLL_INTERVAL, is_last_look: false }
    }

    /// Whether the limit is reached, so that no further look follows.
    pub(crate) const fn is_last_look(&self) -> bool {
        self.is_last_look
    }

    /// Completes when it is time for the next look: after `woken`, and at the latest after a second, because
    /// other processes wake nothing here. Also completes at the limit.
    pub(crate) async fn for_next_look(&mut self, woken: impl Future) {
        if self.is_last_look {
            return;
        }
        tokio::select! {
            _woken = timeout(self.interval, woken) => {}
            () = &mut self.limit => self.is_last_look = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::future::{pending, ready};

    #[tokio::test]
    async fn a_wake_leads_to_another_look_and_the_wait_continues() {
        let mut wait = Wait::until(pending());
        for _ in 0..2 {
            assert_eq!(wait.for_next_look(pending::<()>()).now_or_never(), None, "nothing has changed");
            assert_eq!(wait.for_next_look(ready(())).now_or_never(), Some(()));
            assert!(!wait.is_last_look());
        }
    }

    #[tokio::test]
    async fn the_limit_leads_to_exactly_one_last_look() {
        let mut wait = Wait::until(ready(()));
        assert!(!wait.is_last_look(), "the first look comes before the limit");
        assert_eq!(wait.for_next_look(pending::<()>()).now_or_never(), Some(()));
        assert!(wait.is_last_look());
        assert_eq!(wait.for_next_look(pending::<()>()).now_or_never(), Some(()), "nothing left to wait for");
    }

    #[tokio::test]
    async fn rows_that_change_without_a_wake_are_looked_at_after_the_interval() {
        let mut wait = Wait { interval: Duration::from_millis(1), ..Wait::until(pending()) };
        wait.for_next_look(pending::<()>()).await;
        assert!(!wait.is_last_look());
    }
}
