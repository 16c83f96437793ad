//! The limits of this process: requests per minute, open requests and streams of a user, and the bytes of bodies
//! and answers.

use crate::config::{Caps, Limits};
use crate::http::failure::error::ApiError;
use crate::http::middleware::in_flight::{InFlight, StreamBytes};
use crate::rate_limit::{RateLimit, RateLimited, User};
use bytes::Bytes;
use holdpoint_core::Principal;
use holdpoint_core::id::ToolCallId;
use holdpoint_serve::{ConcurrencyLimit, Exhausted, Slot};
use poem::{FromRequest, Request, RequestBody, Result};
use std::sync::Arc;

/// `retry-after` of the limit on streams, in seconds. The end of a stream cannot be predicted.
const STREAM_SECONDS: u64 = 5;
/// `retry-after` of the limit on waiting claims, in seconds. A call may end one at any time.
const CLAIM_SECONDS: u64 = 5;

/// `retry-after` of the limit on open requests, in seconds.
const OPEN_SECONDS: u64 = 1;

/// The recent requests, the open requests and the open streams of each user.
#[derive(Debug)]
pub(crate) struct Rates {
    requests: RateLimit,
    open: ConcurrencyLimit<User>,
    streams: ConcurrencyLimit<User>,
    claims: ConcurrencyLimit<User>,
    pub(in crate::http) in_flight: InFlight,
}

impl Rates {
    pub(crate) fn new(caps: &Caps, limits: &Limits) -> Self {
        Self {
            requests: RateLimit::new("requests", caps.requests_per_minute),
            open: ConcurrencyLimit::new(caps.open_requests_per_user),
            streams: ConcurrencyLimit::new(caps.streams_per_user),
            claims: ConcurrencyLimit::new(caps.claims_per_user),
            in_flight: InFlight::new(limits),
        }
    }

    /// Counts a request.
    pub(in crate::http) fn request(&self, caller: &Principal) -> Result<(), ApiError> {
        self.requests.count(caller).map_err(ApiError::from)
    }

    /// Counts an open request until the result is dropped.
    pub(in crate::http) fn open(&self, caller: &Principal) -> Result<OpenRequest, ApiError> {
        self.open.take(User::of(caller)).map(|slot| OpenRequest { _slot: slot }).map_err(|max| {
            ApiError::rate_limited(format!("More than {max} open requests of this user."), OPEN_SECONDS)
        })
    }

    /// Counts a report of the outcome of this call.
    pub(in crate::http) fn report(&self, call: ToolCallId) -> Result<(), ApiError> {
        let counted = self.requests.count_one(&User::reporting(call));
        counted.map_err(|limited| RateLimited { of: "reports", ..limited }.into())
    }

    /// Takes a slot for a stream of the caller.
    pub(in crate::http) fn stream(&self, caller: &Principal) -> Result<StreamSlot, ApiError> {
        let slot = self.streams.take(User::of(caller));
        let bytes = self.in_flight.stream(caller);
        slot.map(|slot| StreamSlot(Arc::new(OpenStream { _slot: slot, bytes }))).map_err(|max| {
            ApiError::rate_limited(format!("More than {max} streams of this user at once."), STREAM_SECONDS)
        })
    }

    /// Takes a slot for a claim of the caller that waits.
    pub(in crate::http) fn claim(&self, caller: &Principal) -> Result<Slot<User>, ApiError> {
        self.claims.take(User::of(caller)).map_err(|max| {
            let message = format!("More than {max} waiting claims of this user at once.");
            ApiError::rate_limited(message, CLAIM_SECONDS)
        })
    }
}

/// An open request of a user.
#[derive(Debug)]
pub(in crate::http) struct OpenRequest {
    _slot: Slot<User>,
}

/// A slot for one stream. It is released when the last clone is dropped. The middleware puts it into the
/// request.
#[derive(Debug, Clone)]
pub(in crate::http) struct StreamSlot(Arc<OpenStream>);

#[derive(Debug)]
struct OpenStream {
    _slot: Slot<User>,
    bytes: StreamBytes,
}

impl StreamSlot {
    /// Counts a chunk of the stream until the client has taken it.
    pub(in crate::http) fn hold(&self, chunk: Bytes) -> Result<Bytes, Exhausted> {
        self.0.bytes.hold(chunk)
    }

    /// Counts the chunks that are in memory before the stream begins.
    pub(in crate::http) fn hold_all(&self, chunks: Vec<Bytes>) -> Result<Vec<Bytes>, Exhausted> {
        self.0.bytes.hold_all(chunks)
    }
}

impl<'a> FromRequest<'a> for StreamSlot {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(request.data::<Self>().cloned().ok_or_else(ApiError::internal)?)
    }
}
