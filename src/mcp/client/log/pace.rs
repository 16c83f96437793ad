//! How much work a server may cause: so much at once, and then so much each second.

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use std::num::NonZeroU32;

/// A limit on one kind of work.
pub(in crate::mcp) struct Pace(DefaultDirectRateLimiter);

impl Pace {
    pub(in crate::mcp) fn new(at_once: u32, per_second: u32) -> Self {
        let some = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Self(RateLimiter::direct(Quota::per_second(some(per_second)).allow_burst(some(at_once))))
    }

    /// Counts one, if that is possible now.
    pub(in crate::mcp) fn try_one(&self) -> bool {
        self.0.check().is_ok()
    }

    /// Waits until one is possible, and counts it. Dropped before its end, it counts nothing.
    pub(in crate::mcp) async fn one(&self) {
        self.0.until_ready().await;
    }

    /// Waits until so many are possible, and counts them. At most as many as at once.
    pub(in crate::mcp) async fn many(&self, count: usize) {
        if let Some(count) = u32::try_from(count).ok().and_then(NonZeroU32::new) {
            let _fits = self.0.until_n_ready(count).await;
        }
    }
}
