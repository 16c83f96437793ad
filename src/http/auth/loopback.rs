//! Checks that a request comes from this machine.
//!
//! Without authentication, every caller is the one local user, so only this machine may reach the server:
//!
//! - The connection comes from this machine, whatever address the server listens on.
//! - `Host` names the loopback. Otherwise a page on another machine could reach the server by a name that
//!   resolves to this machine (DNS rebinding).
//! - `Origin` names the loopback, or the configuration lists it. Otherwise any page in the user's browser
//!   could decide for the user.
//! - Without `Origin`, as for an image, `Sec-Fetch-Site` names a page of this server (Fetch Metadata), where
//!   the browser sends it. Any page may link to the console and to the documentation.
//! - A proxy on this machine connects from this machine for all of its clients. The forwarding headers that
//!   it sets must name this machine too, as those of a page's development server do.

use crate::http::failure::error::ApiError;
use crate::http::middleware::cors::AllowedOrigin;
use poem::http::header::{FORWARDED, HOST, ORIGIN};
use poem::http::{HeaderName, Method};
use poem::web::RemoteAddr;
use poem::{Addr, Request};
use std::net::IpAddr;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Refuses a request that does not come from this machine, or that names the server by another name than this
/// machine's.
pub(in crate::http) fn check(request: &Request) -> Result<(), ApiError> {
    if !is_of_this_machine(request.remote_addr()) {
        let message =
            "Expected a connection of this machine; without authentication no other machine may be let in.";
        return Err(ApiError::forbidden(message));
    }
    // HTTP/2 has the host in the URI.
    let host = match (header(request, &HOST), request.uri().host()) {
        (Some(host), _) | (None, Some(host)) => host,
        (None, None) => "",
    };
    if !names_loopback(host) {
        return Err(ApiError::forbidden("Host: expected localhost, 127.0.0.1 or [::1]."));
    }
    if comes_from_elsewhere(request) {
        let message = "Forwarded, X-Forwarded-For, X-Forwarded-Host: expected none, or this machine alone; \
                       without authentication no other machine may be let in.";
        return Err(ApiError::forbidden(message));
    }
    if request.data::<AllowedOrigin>().is_some() {
        return Ok(());
    }
    if request.headers().contains_key(ORIGIN) {
        let origin = header(request, &ORIGIN).and_then(|origin| origin.split_once("://"));
        if !origin.is_some_and(|(_, host)| names_loopback(host)) {
            let message = "Origin: expected a page of this machine, or of server.cors_origins.";
            return Err(ApiError::forbidden(message));
        }
    } else if is_of_another_page(request) && !follows_a_link(request) {
        return Err(ApiError::forbidden("Sec-Fetch-Site: expected a page of this server."));
    }
    Ok(())
}

/// Whether the peer is on this machine. A custom address counts as another machine.
fn is_of_this_machine(RemoteAddr(peer): &RemoteAddr) -> bool {
    match peer {
        Addr::SocketAddr(peer) => peer.ip().to_canonical().is_loopback(),
        Addr::Unix(_) => true,
        Addr::Custom(..) => false,
    }
}

/// Whether the headers of a proxy name a client on another machine. `Forwarded` always counts as such.
fn comes_from_elsewhere(request: &Request) -> bool {
    let headers = request.headers();
    let is_elsewhere = |name: &HeaderName| {
        headers.get_all(name).iter().any(|value| {
            let mut named = value.to_str().unwrap_or_default().split(',');
            !named.all(|address| is_here(address.trim()))
        })
    };
    headers.contains_key(FORWARDED) || is_elsewhere(&X_FORWARDED_FOR) || is_elsewhere(&X_FORWARDED_HOST)
}

/// Whether this is an address or a name of this machine. An IPv6 address may lack its brackets.
fn is_here(named: &str) -> bool {
    match named.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => names_loopback(named),
    }
}

/// Whether the browser reports that a page of another site caused the request. Other clients do not report
/// this.
fn is_of_another_page(request: &Request) -> bool {
    let site = header(request, &SEC_FETCH_SITE);
    request.headers().contains_key(SEC_FETCH_SITE) && !matches!(site, Some("same-origin" | "none"))
}

/// Whether a user follows a link to the console or the documentation. The link alone reveals no user data and starts
/// nothing.
fn follows_a_link(request: &Request) -> bool {
    request.method() == Method::GET
        && header(request, &SEC_FETCH_MODE) == Some("navigate")
        && matches!(request.uri().path(), "/" | "/docs" | "/docs/")
}

/// Returns the value of a header that occurs exactly once.
fn header<'a>(request: &'a Request, name: &HeaderName) -> Option<&'a str> {
    let mut values = request.headers().get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

fn names_loopback(authority: &str) -> bool {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    // After the host there is a port or nothing, never the rest of another name.
    let port = rest.strip_prefix(':').unwrap_or(rest);
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "[::1]"] {
            assert!(names_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::2]:80",
            "127.0.0.1x",
            "localhost:80@evil.example",
            "[::1].evil.example",
        ] {
            assert!(!names_loopback(host), "{host}");
        }
    }
}
