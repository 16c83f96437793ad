//! How often one user may do something, and how much at once, at this process. With several processes each counts
//! for itself.
//!
//! It is the caller who is counted, never what a request names.

use super::error::ApiError;
use super::shares::{Share, Shares};
use crate::chat::{Pace, TooOften};
use crate::config::Caps;
use crate::domain::Principal;
use governor::clock::Clock;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use poem::{FromRequest, Request, RequestBody, Result};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// After so many requests those who made none for a while are forgotten.
const FORGET_EVERY: u32 = 1024;
/// When to ask again where open streams are in the way: nobody knows when one ends.
const STREAM_SECONDS: u64 = 5;

/// Who is counted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct User {
    tenant_id: String,
    user_id: String,
}

impl User {
    fn of(principal: &Principal) -> Self {
        Self { tenant_id: principal.tenant_id.clone(), user_id: principal.user_id.clone() }
    }
}

/// What each user did lately, and which streams they read.
#[derive(Debug)]
pub(crate) struct Rates {
    requests: Option<Rate>,
    turns: Option<Rate>,
    decisions: Option<Rate>,
    streams: Shares<User>,
    counted: AtomicU32,
}

impl Rates {
    pub(crate) fn new(caps: &Caps) -> Self {
        Self {
            requests: caps.requests_per_minute.map(Rate::new),
            turns: caps.turns_per_minute.map(Rate::new),
            decisions: caps.decisions_per_minute.map(Rate::new),
            streams: Shares::new(caps.streams_per_user),
            counted: AtomicU32::new(0),
        }
    }

    /// Counts a request.
    pub(super) fn request(&self, caller: &Principal) -> Result<(), ApiError> {
        if self.counted.fetch_add(1, Ordering::Relaxed) % FORGET_EVERY == FORGET_EVERY - 1 {
            self.forget_idle();
        }
        count(self.requests.as_ref(), caller)
            .map_err(|TooOften { max, seconds }| ApiError::too_often(max, "requests", seconds))
    }

    /// Counts a decision.
    pub(super) fn decision(&self, caller: &Principal) -> Result<(), ApiError> {
        count(self.decisions.as_ref(), caller)
            .map_err(|TooOften { max, seconds }| ApiError::too_often(max, "decisions", seconds))
    }

    /// A place among the streams that the caller reads.
    pub(super) fn stream(&self, caller: &Principal) -> Result<StreamPlace, ApiError> {
        let place = self.streams.take(User::of(caller));
        place.map(|share| StreamPlace(Arc::new(share))).map_err(|max| {
            ApiError::rate_limited(format!("More than {max} streams of this user at once."), STREAM_SECONDS)
        })
    }

    /// Forgets who has not been here for as long as it takes to be a stranger again.
    fn forget_idle(&self) {
        for rate in [&self.requests, &self.turns, &self.decisions].into_iter().flatten() {
            rate.limiter.retain_recent();
            rate.limiter.shrink_to_fit();
        }
    }
}

impl Pace for Rates {
    fn count_turn(&self, principal: &Principal) -> Result<(), TooOften> {
        count(self.turns.as_ref(), principal)
    }
}

/// A stream that somebody reads; it is one until the last of this is dropped. The front puts it there.
#[derive(Debug, Clone)]
pub(super) struct StreamPlace(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Share<User>>);

impl<'a> FromRequest<'a> for StreamPlace {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(request.data::<Self>().cloned().ok_or_else(ApiError::internal)?)
    }
}

/// So many a minute, of each user: that many at once, and then one whenever one's share of the minute is over.
#[derive(Debug)]
struct Rate {
    max: NonZeroU32,
    limiter: DefaultKeyedRateLimiter<User>,
}

impl Rate {
    fn new(max: NonZeroU32) -> Self {
        Self { max, limiter: RateLimiter::dashmap(Quota::per_minute(max)) }
    }
}

fn count(rate: Option<&Rate>, caller: &Principal) -> Result<(), TooOften> {
    let Some(rate) = rate else { return Ok(()) };
    rate.limiter.check_key(&User::of(caller)).map_err(|until| {
        let wait = until.wait_time_from(rate.limiter.clock().now());
        // The whole second in which it may go.
        let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
        TooOften { max: rate.max, seconds }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AuthMode, Limits};

    #[test]
    fn who_has_not_been_here_for_a_while_is_forgotten() {
        // At this rate a user is as good as new at once.
        let limits = Limits { requests_per_minute: Some(u32::MAX), ..Limits::default() };
        let rates = Rates::new(&limits.caps(AuthMode::None));
        for n in 0..10 * FORGET_EVERY {
            let user = Principal { user_id: n.to_string(), ..Principal::local() };
            assert!(rates.request(&user).is_ok());
        }
        let known = rates.requests.as_ref().map(|rate| rate.limiter.len());
        assert!(known.is_some_and(|known| known <= FORGET_EVERY as usize), "{known:?}");
    }
}
