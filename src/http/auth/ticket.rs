//! Tickets in the place of tokens: in the query of the two routes that browsers send no header to.
//!
//! A ticket says itself for whom it is and until when, and is signed: one that is not good is refused without the
//! database, which knows the tickets that were used, and no others. A ticket is in no line of the log: there is the path
//! of a request, and never its query.

use super::unknown::Unknown;
use super::{Expiry, Known};
use crate::domain::Principal;
use crate::domain::clock::{Clock, Timestamp};
use crate::domain::id::TicketId;
use crate::http::cors::AllowedOrigin;
use crate::http::error::ApiError;
use crate::store::Store;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use poem::Request;
use poem::http::header::{AUTHORIZATION, HOST, ORIGIN};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use std::sync::Arc;
use std::time::Duration;

/// How long a ticket is good: it is made for what comes next.
const LASTS: Duration = Duration::from_secs(30);

/// What a ticket says.
#[derive(Serialize, Deserialize)]
struct Content {
    ticket_id: TicketId,
    tenant_id: String,
    user_id: String,
    roles: Vec<String>,
    /// Microseconds since 1970, by the clock of the process that made it.
    expires_at: i64,
    /// When the token expires that it was got with, if that was a token.
    known_until: Option<i64>,
}

/// Makes tickets, and knows them again.
#[derive(Debug, Clone)]
pub(crate) struct Tickets {
    /// All servers of a database have the same.
    key: SecretString,
    clock: Arc<dyn Clock>,
}

/// A ticket that is good, if it was not used before.
#[derive(Debug)]
pub(in crate::http) struct Unused {
    id: TicketId,
    expires_at: Timestamp,
}

/// The ticket of a request that has no token, where one may stand in for it.
pub(super) fn of(request: &Request) -> Option<String> {
    let path = request.uri().path();
    let takes_tickets = matches!(path.strip_prefix("/api").unwrap_or(path), "/events" | "/ws");
    if !takes_tickets || request.headers().contains_key(AUTHORIZATION) {
        return None;
    }
    let query = request.uri().query().unwrap_or_default();
    let mut tickets = url::form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == "ticket");
    let (_, ticket) = tickets.next().filter(|_| tickets.next().is_none())?;
    Some(ticket.into_owned())
}

impl Tickets {
    /// Signs with this key.
    pub(crate) fn new(key: SecretString, clock: Arc<dyn Clock>) -> Self {
        Self { key, clock }
    }

    /// A ticket for this principal, who is known until then, and when it is over.
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
        let signature = self.mac(&content).ok_or_else(ApiError::internal)?.finalize().into_bytes();
        Ok((format!("{content}.{}", URL_SAFE_NO_PAD.encode(signature)), expires_at))
    }

    /// Whose ticket this is. It has still to be used up.
    pub(super) fn read(&self, ticket: &str) -> Result<Known, Unknown> {
        let content = self.verified(ticket).ok_or(Unknown::TicketForged)?;
        let expires_at = Timestamp::from_micros(content.expires_at);
        if expires_at <= self.clock.now() {
            return Err(Unknown::TicketExpired);
        }
        let Content { ticket_id, tenant_id, user_id, roles, known_until, .. } = content;
        Ok(Known {
            principal: Principal { tenant_id, user_id, roles },
            expiry: Expiry(known_until.map(Timestamp::from_micros)),
            ticket: Some(Unused { id: ticket_id, expires_at }),
        })
    }

    /// What a ticket says that is signed with the key.
    fn verified(&self, ticket: &str) -> Option<Content> {
        let (content, signature) = ticket.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        // In constant time; nothing is read before.
        self.mac(content)?.verify_slice(&signature).ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(content).ok()?).ok()
    }

    fn mac(&self, content: &str) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.key.expose_secret().as_bytes()).ok()?;
        mac.update(content.as_bytes());
        Some(mac)
    }
}

impl Unused {
    /// Uses the ticket up: of several requests with the same ticket, in whatever process, one can.
    pub(in crate::http) async fn use_up(self, store: &Store) -> Result<(), ApiError> {
        let write = store.write().await?;
        if !write.use_ticket(self.id, self.expires_at).await? {
            return Err(ApiError::unauthenticated(&Unknown::TicketUsed));
        }
        write.commit().await?;
        Ok(())
    }
}

/// Refuses a page of another origin that the configuration does not name: browsers let any page open a WebSocket, and
/// leave it to the server to look whose it is (RFC 6455, 10.2).
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
