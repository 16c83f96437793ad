//! Tickets: a replacement for tokens in the query of the two routes to which browsers cannot send a header.
//!
//! A ticket contains its principal and its expiry, and is signed. The server refuses an invalid ticket
//! without the database, which stores only used tickets. No line of the log contains a ticket, because the
//! log has the path of a request but never the query.

use super::signing::{Purpose, SigningKey};
use super::{Expiry, KnownCaller};
use crate::http::auth::failure::Unknown;
use crate::http::failure::error::ApiError;
use crate::http::middleware::cors::AllowedOrigin;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdpoint_core::Principal;
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_core::id::TicketId;
use holdpoint_store::Store;
use poem::Request;
use poem::http::header::{AUTHORIZATION, HOST, ORIGIN};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// How long a ticket is valid. A client gets a ticket immediately before it connects.
const LASTS: Duration = Duration::from_secs(30);

/// The content of a ticket.
#[derive(Serialize, Deserialize)]
struct Content {
    ticket_id: TicketId,
    tenant_id: String,
    user_id: String,
    roles: Vec<String>,
    /// Microseconds since 1970, by the clock of the process that made the ticket.
    expires_at: i64,
    /// When the token expires with which the client got the ticket, if the client used a token.
    known_until: Option<i64>,
}

/// Makes and checks tickets.
#[derive(Debug, Clone)]
pub(crate) struct Tickets {
    key: SigningKey,
    clock: Arc<dyn Clock>,
}

/// A valid ticket that may have been used before.
#[derive(Debug)]
pub(in crate::http) struct UnusedTicket {
    id: TicketId,
    expires_at: Timestamp,
}

/// Returns the ticket of a request without a token, on the routes that accept tickets.
pub(super) fn of(request: &Request) -> Option<String> {
    let path = request.uri().path();
    let accepts_tickets =
        matches!(path.strip_prefix("/api").unwrap_or(path), "/events" | "/events/stream" | "/ws");
    if !accepts_tickets || request.headers().contains_key(AUTHORIZATION) {
        return None;
    }
    let query = request.uri().query().unwrap_or_default();
    let mut tickets = url::form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "ticket");
    let (_, ticket) = tickets.next().filter(|_| tickets.next().is_none())?;
    Some(ticket.into_owned())
}

impl Tickets {
    /// Creates tickets signed with this key.
    pub(crate) fn new(key: SecretString, clock: Arc<dyn Clock>) -> Self {
        Self { key: SigningKey::new(key), clock }
    }

    pub(super) fn key(&self) -> &SigningKey {
        &self.key
    }

    /// Returns a ticket for this principal, authenticated until `known_until`, and the expiry of the ticket.
    pub(in crate::http) fn make(
        &self,
        principal: &Principal,
        known_until: Expiry,
    ) -> Result<(String, Timestamp), ApiError> {
        let expires_at = self.clock.now().plus(LASTS);
        let content = Content {
            ticket_id: TicketId::new(self.clock.uuid()),
            tenant_id: principal.tenant_id.clone(),
            user_id: principal.user_id.clone(),
            roles: principal.roles.clone(),
            expires_at: expires_at.as_micros(),
            known_until: known_until.0.map(Timestamp::as_micros),
        };
        let content = serde_json::to_vec(&content).map_err(|_| ApiError::internal())?;
        let content = URL_SAFE_NO_PAD.encode(content);
        let signature = self.key.sign(Purpose::Ticket, &content).ok_or_else(ApiError::internal)?;
        Ok((format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature)), expires_at))
    }

    /// Returns the caller that the ticket names. The ticket still has to be used up.
    pub(super) fn read(&self, ticket: &str) -> Result<KnownCaller, Unknown> {
        let content = self.verified(ticket).ok_or(Unknown::TicketForged)?;
        let expires_at = Timestamp::from_micros(content.expires_at);
        if expires_at <= self.clock.now() {
            return Err(Unknown::TicketExpired);
        }
        let Content { ticket_id, tenant_id, user_id, roles, known_until, .. } = content;
        Ok(KnownCaller {
            principal: Principal { tenant_id, user_id, roles },
            expiry: Expiry(known_until.map(Timestamp::from_micros)),
            ticket: Some(UnusedTicket { id: ticket_id, expires_at }),
            session: None,
        })
    }

    /// Returns the content of a ticket if its signature is valid.
    fn verified(&self, ticket: &str) -> Option<Content> {
        let (content, signature) = ticket.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // Verified before the content is parsed.
        if !self.key.has_signed(Purpose::Ticket, content, &signature) {
            return None;
        }
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(content).ok()?).ok()
    }
}

impl UnusedTicket {
    /// Uses the ticket up. Of all requests with the same ticket, in any process, one succeeds.
    pub(in crate::http) async fn use_up(self, store: &Store) -> Result<(), ApiError> {
        let write = store.write().await?;
        if !write.use_ticket(self.id, self.expires_at).await? {
            return Err(ApiError::unauthenticated(&Unknown::TicketUsed, None));
        }
        write.commit().await?;
        Ok(())
    }
}

/// Refuses a page of another origin that the configuration does not list. Browsers let any page open a
/// WebSocket, and the server has to check the origin (RFC 6455, 10.2).
pub(super) fn check_origin(request: &Request) -> Result<(), ApiError> {
    let mut origins = request.headers().get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let own = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let is_own = own.is_some() && own == request.header(HOST) && origins.next().is_none();
    if is_own || request.data::<AllowedOrigin>().is_some() {
        return Ok(());
    }
    Err(ApiError::forbidden("Origin: expected a page of this server, or of server.cors_origins."))
}
