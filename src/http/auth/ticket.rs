//! Tickets in the place of tokens: in the query of the two routes that browsers send no header to.
//!
//! A ticket is in no line of the log: there is the path of a request, and never its query.

use super::Expiry;
use crate::domain::Principal;
use crate::http::cors::Welcome;
use crate::http::error::ApiError;
use crate::store::Store;
use poem::Request;
use poem::http::header::{AUTHORIZATION, HOST, ORIGIN};

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

/// Whose it is. It is good no more.
pub(super) async fn take(ticket: &str, store: &Store) -> Result<(Principal, Expiry), ApiError> {
    let write = store.write().await?;
    let Some((principal, known_until)) = write.take_ticket(ticket).await? else {
        return Err(ApiError::unauthenticated());
    };
    write.commit().await?;
    Ok((principal, Expiry(known_until)))
}

/// Refuses a page of another origin that the configuration does not name: browsers let any page open a WebSocket, and
/// leave it to the server to look whose it is (RFC 6455, 10.2).
pub(super) fn check_origin(request: &Request) -> Result<(), ApiError> {
    let mut origins = request.headers().get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(()) };
    let own = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let is_own = own.is_some() && own == request.header(HOST) && origins.next().is_none();
    if is_own || request.data::<Welcome>().is_some() {
        return Ok(());
    }
    Err(ApiError::forbidden("Origin: expected a page of this server, or of server.cors_origins."))
}
