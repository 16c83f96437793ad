//! `[server]`: how the server faces the network.

use holdpoint_settings::{ConfigError, check_duration, wrong};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

/// `[server]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// Address to listen on. Port `0` takes any free port; the server prints the address. An address beyond loopback
    /// needs `auth.mode = "jwt"` or `auth.allow_insecure`.
    ///
    /// Value: address. Default: `127.0.0.1:8080`.
    #[serde(deserialize_with = "holdpoint_settings::forms::address")]
    pub bind: SocketAddr,
    /// Origins whose pages may call the server, each as a browser writes it: `https://app.example`,
    /// `http://localhost:3000`. Lower case, no path, no `*`, no default port.
    ///
    /// Value: list of origins. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::list")]
    pub cors_origins: Vec<String>,
    /// Whether the server offers `/docs`, a page to try the API. Without the console, `/` redirects to it.
    ///
    /// Value: switch. Default: `true` if `bind` is loopback, else `false`.
    pub docs: Option<bool>,
    /// Whether the server offers the [console](approvers.md#console), the page for approvers, at `/`.
    ///
    /// Value: switch. Default: `false` if other machines may call without authentication, else `true`.
    pub console: Option<bool>,
    /// Separate address for `/metrics`, `/healthz` and `/readyz`. Without the key, `/metrics` is beside the routes,
    /// but only in mode `none` on loopback without `auth.allow_insecure`.
    ///
    /// Value: address. Default: none.
    #[serde(deserialize_with = "holdpoint_settings::forms::some_address")]
    pub metrics_bind: Option<SocketAddr>,
    /// Address of the server as services and browsers reach it, such as `https://chat.example`: `https://` or
    /// `http://`, with the path that a proxy adds, without a slash at its end. Services of HTTP tools report
    /// [outcomes that come later](tools.md#outcomes-that-come-later) there; without the key they cannot. Browsers
    /// come back there after a [sign-in](approvers.md#sign-in).
    ///
    /// Value: URL. Default: none.
    pub public_url: Option<String>,
    /// Time that a stopping server gives to running turns and tools. Outcomes still open after it become
    /// `interrupted`. See [operations.md](operations.md).
    ///
    /// Value: duration. Default: `20s`.
    #[serde(with = "holdpoint_settings::forms::duration")]
    pub grace: Duration,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 8080)),
            cors_origins: Vec::new(),
            docs: None,
            console: None,
            metrics_bind: None,
            public_url: None,
            // Most supervisors kill a process after 30 s. The outcomes of abandoned work must be stored
            // before.
            grace: Duration::from_secs(20),
        }
    }
}

impl Server {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let Some(other) = self.cors_origins.iter().find(|origin| !is_origin(origin)) {
            return wrong(
                "server.cors_origins",
                format!(
                    "expected origins as browsers write them, like https://app.example or \
                     http://localhost:3000: in lower case, without a path, without * and without the default \
                     port; found {other:?}"
                ),
            );
        }
        if self.public_url.as_deref().is_some_and(|url| !is_base_url(url)) {
            let expected = "expected an https:// or http:// URL without a user name, a query, a fragment and a slash at \
                            its end, like https://chat.example";
            return wrong("server.public_url", expected);
        }
        check_duration("server.grace", self.grace)
    }
}

/// Whether the path of a route can be appended to this text.
fn is_base_url(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let plain = url.username().is_empty() && url.password().is_none();
    let plain = plain && url.query().is_none() && url.fragment().is_none() && url.has_host();
    let printable = text.chars().all(|c| c.is_ascii_graphic());
    plain && printable && matches!(url.scheme(), "http" | "https") && !text.ends_with('/')
}

/// Returns whether a browser writes an origin in this form (RFC 6454, 6.2). Another form would never match.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return false };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    is_scheme(scheme) && is_host(host) && port.is_none_or(|port| is_port(port, scheme))
}

fn is_scheme(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(inner)
}

fn is_host(text: &str) -> bool {
    if let Some(address) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|parsed| parsed.to_string() == address);
    }
    let named = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    !text.is_empty() && text.chars().all(named)
}

fn is_port(text: &str, scheme: &str) -> bool {
    let usual = matches!((scheme, text), ("http", "80") | ("https", "443"));
    !usual && text.parse::<u16>().is_ok_and(|port| port > 0 && port.to_string() == text)
}
