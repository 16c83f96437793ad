//! Tickets for browsers that open a stream or a WebSocket, where a browser cannot send a token.

use crate::http::Api;
use crate::http::access::{Access, CallerKind::User};
use crate::http::auth::{Caller, Expiry};
use crate::http::body::formats::Time;
use crate::http::body::payload::{Json, Tag};
use crate::http::failure::error::ApiError;
use poem_openapi::{ApiResponse, Object, OpenApi};

/// A single-use replacement for a token.
#[derive(Debug, Object)]
struct Ticket {
    /// Send it as the query parameter `ticket` to `/events/stream` or `/ws`.
    ticket: String,
    /// When the ticket stops being valid. The stream that it opens lasts longer.
    expires_at: Time,
}

#[derive(ApiResponse)]
enum TicketResponse {
    /// The ticket was created.
    #[oai(status = 201)]
    Created(Json<Ticket>),
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("createTicket", &[User])];

pub(in crate::http) struct Tickets(pub(in crate::http) Api);

#[OpenApi]
impl Tickets {
    /// Create a ticket for an event stream
    ///
    /// A ticket replaces the caller's token in `GET /events/stream?ticket=` and `GET /ws?ticket=`, where browsers
    /// cannot send a token. A ticket is valid once and for 30 seconds. A stream that is opened with a ticket
    /// ends when the token expires.
    #[oai(path = "/tickets", method = "post", operation_id = "createTicket", tag = "Tag::Events")]
    async fn create(&self, caller: Caller, expiry: Expiry) -> Result<TicketResponse, ApiError> {
        let (ticket, expires_at) = self.0.tickets.make(&caller.0, expiry)?;
        Ok(TicketResponse::Created(Json(Ticket { ticket, expires_at: expires_at.into() })))
    }
}
