//! Rate limits for each user, per process. Each process counts separately.
//!
//! The limiter counts the caller, never a name in a request.

use governor::clock::Clock;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use holdpoint_core::Principal;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::sign_in::SecretHash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of checks after which users without recent requests are dropped.
const FORGET_EVERY: u32 = 1024;

/// The user that a limit counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct User {
    tenant_id: String,
    user_id: String,
}

impl User {
    /// Returns the user of the principal, regardless of roles.
    pub(crate) fn of(principal: &Principal) -> Self {
        Self { tenant_id: principal.tenant_id.clone(), user_id: principal.user_id.clone() }
    }

    /// Returns the reporter of the outcome of this call, as a user. No tenant has an empty name.
    pub(crate) fn reporting(call: ToolCallId) -> Self {
        Self { tenant_id: String::new(), user_id: call.to_string() }
    }

    /// Returns the sign-in with this secret as a user, before anything says whose it is.
    pub(crate) fn of_sign_in(secret: &SecretHash) -> Self {
        Self { tenant_id: String::new(), user_id: secret.as_str().to_owned() }
    }
}

/// The error for a user at the limit.
#[derive(Debug, thiserror::Error)]
#[error("more than {max} {of} in a minute")]
pub(crate) struct RateLimited {
    /// What the limit counts, as in "more than 3 decisions".
    pub(crate) of: &'static str,
    /// The limit per minute.
    pub(crate) max: NonZeroU32,
    /// The seconds until the user may try again.
    pub(crate) seconds: u64,
}

/// A limit per minute and user. The whole limit is available as a burst, and is refilled evenly over the
/// minute.
#[derive(Debug)]
pub(crate) struct RateLimit(Option<Limited>);

#[derive(Debug)]
struct Limited {
    of: &'static str,
    max: NonZeroU32,
    limiter: DefaultKeyedRateLimiter<User>,
    counted: AtomicU32,
}

impl RateLimit {
    /// Creates a limit of these things, such as `decisions`. `None`: no limit.
    pub(crate) fn new(of: &'static str, max: Option<NonZeroU32>) -> Self {
        Self(max.map(|max| Limited {
            of,
            max,
            limiter: RateLimiter::dashmap(Quota::per_minute(max)),
            counted: AtomicU32::new(0),
        }))
    }

    /// Counts one request of this principal, or returns an error if the limit is reached.
    pub(crate) fn count(&self, principal: &Principal) -> Result<(), RateLimited> {
        self.count_one(&User::of(principal))
    }

    /// Counts several requests of this principal at once, or none of them. More than the whole limit count as the
    /// limit, because no wait would allow them.
    pub(crate) fn count_many(&self, principal: &Principal, requests: u32) -> Result<(), RateLimited> {
        self.count_of(&User::of(principal), requests)
    }

    /// Counts one request of this user.
    pub(crate) fn count_one(&self, user: &User) -> Result<(), RateLimited> {
        self.count_of(user, 1)
    }

    fn count_of(&self, user: &User, requests: u32) -> Result<(), RateLimited> {
        let Some(limited) = &self.0 else { return Ok(()) };
        if limited.counted.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            limited.limiter.retain_recent();
            limited.limiter.shrink_to_fit();
        }
        let cells = NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN).min(limited.max);
        // The burst of the limiter is the limit, so that it has room for that number.
        let Ok(checked) = limited.limiter.check_key_n(user, cells) else { return Ok(()) };
        checked.map_err(|until| {
            let wait = until.wait_time_from(limited.limiter.clock().now());
            // Rounds up to whole seconds.
            let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
            RateLimited { of: limited.of, max: limited.max, seconds }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_users_are_forgotten() {
        // At this rate, the share of a user is refilled at once.
        let limit = RateLimit::new("requests", NonZeroU32::new(u32::MAX));
        for n in 0..10 * FORGET_EVERY {
            let user = Principal { user_id: n.to_string(), ..Principal::local() };
            assert!(limit.count(&user).is_ok());
        }
        let known = limit.0.map(|limited| limited.limiter.len());
        assert!(known.is_some_and(|known| known <= FORGET_EVERY as usize), "{known:?}");
    }
}
