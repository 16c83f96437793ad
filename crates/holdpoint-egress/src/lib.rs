//! The HTTP clients for outgoing requests: one for addresses of the operator, such as models, and the [`Reach`]
//! for the addresses of tools and endpoints, which get a [`Post`]. [`Frames`] reads streamed responses.

#![warn(missing_docs)]

mod addresses;
pub mod callback;
pub mod config;
mod frames;
#[cfg(feature = "oauth")]
mod oauth;
mod post;
mod reach;
pub mod signed_post;
pub mod standard_webhooks;
mod trace;

pub use frames::{BrokenStream, ERROR, Frame, Frames, Framing};
#[cfg(feature = "oauth")]
pub use oauth::{ISSUER_BYTES_MAX, ISSUER_TIMEOUT, TokenRequests, Unreachable, token_error};
pub use post::{Post, RequestFailure};
pub use reach::Reach;
pub use trace::continue_trace;

use reqwest::Url;
use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

/// A server that does not accept a connection within this time counts as down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns a client for this address. The client follows no redirects: requests go to the configured host
/// only. The client uses the proxy from the environment, except for loopback addresses, because a proxy could
/// forge the responses of a local server.
pub fn client(url: &Url) -> Result<reqwest::Client, String> {
    let client = if is_here(url) { builder().no_proxy() } else { builder() };
    client.build().map_err(chain)
}

fn builder() -> reqwest::ClientBuilder {
    // reqwest panics without a provider, even for plain HTTP. A provider that the process installed before
    // stays in place.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(reqwest::redirect::Policy::none())
}

/// Whether the address is a loopback address.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Reads the body of a response of at most this many bytes.
pub async fn read(mut response: reqwest::Response, bytes_max: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(chain)? {
        body.extend_from_slice(&piece);
        if body.len() > bytes_max {
            return Err(format!("more than {bytes_max} bytes"));
        }
    }
    Ok(body)
}

/// Returns the error with its causes. Only the first error contains the URL, which is removed.
pub fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
