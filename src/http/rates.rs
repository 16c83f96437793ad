//! How often one user may ask, how many streams they may read at once, and how many bytes of bodies there are, at this
//! process.

use super::budget::{Budget, Reserved};
use super::concurrency::{ConcurrencyLimit, Slot};
use super::error::ApiError;
use crate::config::Caps;
use crate::domain::Principal;
use crate::rate_limit::{RateLimit, RateLimited, User};
use poem::{FromRequest, Request, RequestBody, Result};
use std::sync::Arc;

/// When to ask again where open streams are in the way: nobody knows when one ends.
const STREAM_SECONDS: u64 = 5;

/// What each user did lately, and which streams they read.
#[derive(Debug)]
pub(crate) struct Rates {
    requests: RateLimit,
    streams: ConcurrencyLimit<User>,
    bodies: Budget,
}

impl Rates {
    pub(crate) fn new(caps: &Caps, bodies_in_flight_bytes: usize) -> Self {
        Self {
            requests: RateLimit::new(caps.requests_per_minute),
            streams: ConcurrencyLimit::new(caps.streams_per_user),
            bodies: Budget::new(bodies_in_flight_bytes),
        }
    }

    /// A part of the bytes of bodies, for one.
    pub(super) fn body(&self) -> Reserved {
        self.bodies.part()
    }

    /// Counts a request.
    pub(super) fn request(&self, caller: &Principal) -> Result<(), ApiError> {
        let counted = self.requests.count(caller);
        counted.map_err(|RateLimited { max, seconds }| ApiError::too_often(max, "requests", seconds))
    }

    /// A place among the streams that the caller reads.
    pub(super) fn stream(&self, caller: &Principal) -> Result<StreamSlot, ApiError> {
        let place = self.streams.take(User::of(caller));
        place.map(|share| StreamSlot(Arc::new(share))).map_err(|max| {
            ApiError::rate_limited(format!("More than {max} streams of this user at once."), STREAM_SECONDS)
        })
    }
}

/// A stream that somebody reads; it is one until the last of this is dropped. The front puts it there.
#[derive(Debug, Clone)]
pub(super) struct StreamSlot(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Slot<User>>);

impl<'a> FromRequest<'a> for StreamSlot {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(request.data::<Self>().cloned().ok_or_else(ApiError::internal)?)
    }
}
