//! How often one user may do something, at this process. With several processes each counts for itself.
//!
//! It is the caller who is counted, never what a request names.

use crate::domain::Principal;
use governor::clock::Clock;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

/// After so many counts those who were not counted for a while are forgotten.
const FORGET_EVERY: u32 = 1024;

/// Who is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct User {
    tenant_id: String,
    user_id: String,
}

impl User {
    /// The principal, whatever their roles.
    pub(crate) fn of(principal: &Principal) -> Self {
        Self { tenant_id: principal.tenant_id.clone(), user_id: principal.user_id.clone() }
    }
}

/// Somebody did something as often as they may for now.
#[derive(Debug, thiserror::Error)]
#[error("more than {max} in a minute")]
pub(crate) struct RateLimited {
    /// In a minute.
    pub(crate) max: NonZeroU32,
    /// When they may again.
    pub(crate) seconds: u64,
}

/// So many a minute, of each user: that many at once, and then one whenever one's share of the minute is over.
#[derive(Debug)]
pub(crate) struct RateLimit(Option<Limited>);

#[derive(Debug)]
struct Limited {
    max: NonZeroU32,
    limiter: DefaultKeyedRateLimiter<User>,
    counted: AtomicU32,
}

impl RateLimit {
    /// At most this many, or as many as they like.
    pub(crate) fn new(max: Option<NonZeroU32>) -> Self {
        Self(max.map(|max| Limited {
            max,
            limiter: RateLimiter::dashmap(Quota::per_minute(max)),
            counted: AtomicU32::new(0),
        }))
    }

    /// Counts one of this principal's, if there may be one more.
    pub(crate) fn count(&self, principal: &Principal) -> Result<(), RateLimited> {
        let Some(limited) = &self.0 else { return Ok(()) };
        if limited.counted.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            limited.limiter.retain_recent();
            limited.limiter.shrink_to_fit();
        }
        limited.limiter.check_key(&User::of(principal)).map_err(|until| {
            let wait = until.wait_time_from(limited.limiter.clock().now());
            // The whole second in which they may.
            let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
            RateLimited { max: limited.max, seconds }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_been_here_for_a_while_is_forgotten() {
        // At this rate a user is as good as new at once.
        let limit = RateLimit::new(NonZeroU32::new(u32::MAX));
        for n in 0..10 * FORGET_EVERY {
            let user = Principal { user_id: n.to_string(), ..Principal::local() };
            assert!(limit.count(&user).is_ok());
        }
        let known = limit.0.map(|limited| limited.limiter.len());
        assert!(known.is_some_and(|known| known <= FORGET_EVERY as usize), "{known:?}");
    }
}
