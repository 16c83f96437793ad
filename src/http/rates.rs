//! The limits of this process: requests per minute and concurrent streams of a user, and bytes of bodies of
//! all requests.

use super::error::ApiError;
use crate::config::Caps;
use crate::domain::Principal;
use crate::domain::id::ToolCallId;
use crate::rate_limit::{RateLimit, RateLimited, User};
use holdpoint_serve::{Budget, ConcurrencyLimit, Reserved, Slot};
use poem::{FromRequest, Request, RequestBody, Result};
use std::sync::Arc;

/// `retry-after` of the limit on streams, in seconds. The end of a stream cannot be predicted.
const STREAM_SECONDS: u64 = 5;
/// `retry-after` of the limit on waiting claims, in seconds. A call may end one at any time.
const CLAIM_SECONDS: u64 = 5;

/// The recent requests and the open streams of each user.
#[derive(Debug)]
pub(crate) struct Rates {
    requests: RateLimit,
    streams: ConcurrencyLimit<User>,
    claims: ConcurrencyLimit<User>,
    bodies: Budget,
}

impl Rates {
    pub(crate) fn new(caps: &Caps, bodies_in_flight_bytes: usize) -> Self {
        Self {
            requests: RateLimit::new(caps.requests_per_minute),
            streams: ConcurrencyLimit::new(caps.streams_per_user),
            claims: ConcurrencyLimit::new(caps.claims_per_user),
            bodies: Budget::new(bodies_in_flight_bytes),
        }
    }

    /// Returns an empty share of the body budget.
    pub(super) fn body(&self) -> Reserved {
        self.bodies.part()
    }

    /// Counts a request.
    pub(super) fn request(&self, caller: &Principal) -> Result<(), ApiError> {
        let counted = self.requests.count(caller);
        counted.map_err(|RateLimited { max, seconds }| ApiError::too_often(max, "requests", seconds))
    }

    /// Counts a report of the outcome of this call.
    pub(super) fn report(&self, call: ToolCallId) -> Result<(), ApiError> {
        let counted = self.requests.count_one(&User::reporting(call));
        counted.map_err(|RateLimited { max, seconds }| ApiError::too_often(max, "reports", seconds))
    }

    /// Takes a slot for a stream of the caller.
    pub(super) fn stream(&self, caller: &Principal) -> Result<StreamSlot, ApiError> {
        let slot = self.streams.take(User::of(caller));
        slot.map(|share| StreamSlot(Arc::new(share))).map_err(|max| {
            ApiError::rate_limited(format!("More than {max} streams of this user at once."), STREAM_SECONDS)
        })
    }

    /// Takes a slot for a claim of the caller that waits.
    pub(super) fn claim(&self, caller: &Principal) -> Result<Slot<User>, ApiError> {
        self.claims.take(User::of(caller)).map_err(|max| {
            let message = format!("More than {max} waiting claims of this user at once.");
            ApiError::rate_limited(message, CLAIM_SECONDS)
        })
    }
}

/// A slot for one stream. It is released when the last clone is dropped. The middleware puts it into the
/// request.
#[derive(Debug, Clone)]
pub(super) struct StreamSlot(#[expect(dead_code, reason = "the slot is released on drop")] Arc<Slot<User>>);

impl<'a> FromRequest<'a> for StreamSlot {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(request.data::<Self>().cloned().ok_or_else(ApiError::internal)?)
    }
}
