//! The way out: how anything is asked over the network.

use std::error::Error;
use std::time::Duration;

/// A server that does not take the connection by then is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that follows no redirect: what is sent goes to the host that was configured and to no other.
pub(crate) fn client() -> Result<reqwest::Client, String> {
    // reqwest panics without one, even for plain HTTP. If the process has chosen another, that one stays.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build();
    client.map_err(chain)
}

/// The error and its causes. Only the first names the URL, and that one leaves it out here.
pub(crate) fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
