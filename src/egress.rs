//! The way out: how anything is asked over the network.

use reqwest::Url;
use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

/// A server that does not take the connection by then is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for this address. It follows no redirect: what is sent goes to the host that was configured and to no
/// other. The proxy that the environment names is asked, as everywhere, but not for what is on this machine: its
/// answers would be the proxy's to write.
pub(crate) fn client(url: &Url) -> Result<reqwest::Client, String> {
    // reqwest panics without one, even for plain HTTP. If the process has chosen another, that one stays.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none());
    let client = if is_here(url) { client.no_proxy() } else { client };
    client.build().map_err(chain)
}

/// Whether the address is on this machine.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The error and its causes. Only the first names the URL, and that one leaves it out here.
pub(crate) fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
