//! The end of the connection of a request.

use crate::http::failure::error::ApiError;
use poem::{FromRequest, Request, RequestBody, Result};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Triggered when the client of a request disconnects. The middleware sets it.
#[derive(Debug, Clone)]
pub(in crate::http) struct Disconnected(pub(in crate::http) CancellationToken);

impl Disconnected {
    /// Returns the signal of a request, and its trigger: the future of the connection owns the trigger, and drops
    /// it with itself.
    pub(in crate::http) fn new() -> (Self, DropGuard) {
        let token = CancellationToken::new();
        (Self(token.clone()), token.drop_guard())
    }
}

impl<'a> FromRequest<'a> for Disconnected {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(request.data::<Self>().cloned().ok_or_else(ApiError::internal)?)
    }
}
