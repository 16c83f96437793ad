//! What may be sent to a URL.

use std::net::IpAddr;
use url::Url;

/// Returns whether traffic to the URL stays on this machine or uses TLS.
pub fn is_safe(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default();
    match url.scheme() {
        "https" => true,
        "http" => {
            let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        }
        _ => false,
    }
}
