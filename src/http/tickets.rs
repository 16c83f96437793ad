//! Tickets, for a browser that opens a stream or a WebSocket: it cannot send a token there.

use super::Api;
use super::auth::{Caller, Expiry};
use super::error::ApiError;
use super::payload::{Json, Tag};
use poem_openapi::{ApiResponse, Object, OpenApi};

/// What stands in for a token, once.
#[derive(Debug, Object)]
struct Ticket {
    /// Give it as `ticket` to `/events` or `/ws`.
    ticket: String,
    expires_at: String,
}

#[derive(ApiResponse)]
enum Made {
    /// Made.
    #[oai(status = 201)]
    Made(Json<Ticket>),
}

pub(super) struct Tickets(pub(super) Api);

#[OpenApi]
impl Tickets {
    /// Get a ticket for a stream of events
    ///
    /// It stands in for the caller's token, once and within 30 seconds, in `GET /events?ticket=` and `GET /ws?ticket=`,
    /// where browsers send no token. What is opened with it ends when the token would.
    #[oai(path = "/tickets", method = "post", operation_id = "createTicket", tag = "Tag::Events")]
    async fn create(&self, caller: Caller, expiry: Expiry) -> Result<Made, ApiError> {
        let (ticket, expires_at) = self.0.tickets.make(&caller.0, expiry)?;
        Ok(Made::Made(Json(Ticket { ticket, expires_at: expires_at.to_rfc3339() })))
    }
}
