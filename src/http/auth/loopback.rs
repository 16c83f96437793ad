//! Requests of this machine.
//!
//! Without authentication everybody who reaches the server is its one user, so only this machine may reach
//! it: the `Host` has to name the loopback, or a page elsewhere could reach it by a name that resolves here
//! (DNS rebinding), and so has an `Origin`, or any page in the user's browser could decide for them.

use crate::http::error::ApiError;
use poem::http::header::{HOST, ORIGIN};
use poem::http::{HeaderMap, HeaderName, Uri};
use std::net::IpAddr;

/// Refuses a request that did not come from this machine by this machine's name.
pub(in crate::http) fn check(headers: &HeaderMap, uri: &Uri) -> Result<(), ApiError> {
    // HTTP/2 has the host in the URI.
    let host = match (header(headers, &HOST), uri.host()) {
        (Some(host), _) | (None, Some(host)) => host,
        (None, None) => "",
    };
    if !names_loopback(host) {
        return Err(ApiError::forbidden("Host: expected localhost, 127.0.0.1 or [::1]."));
    }
    let origin = header(headers, &ORIGIN).map(|origin| origin.split_once("://").map_or("", |(_, host)| host));
    if headers.contains_key(ORIGIN) && !origin.is_some_and(names_loopback) {
        return Err(ApiError::forbidden("Origin: expected a page of this machine."));
    }
    Ok(())
}

fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn names_loopback(authority: &str) -> bool {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or_default(),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    // Behind the host there is a port or nothing, not the rest of another name.
    let port = rest.strip_prefix(':').unwrap_or(rest);
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
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
