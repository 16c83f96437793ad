//! The bytes: rig's requests over reqwest, and the answers as the events of their streams.
//!
//! No redirect is followed, so the conversation goes to no other host. What is held of an event without an end
//! and of a refusal has a limit, and the URL is in no error's text.

use super::pieces::Pieces;
use crate::llm::ModelError;
use futures::stream::{self, Stream};
use reqwest::header::{self, HeaderValue};
use rig_core::driver::{Exchange, Opened, Opening, Transport};
use rig_core::error::ProviderError;
use rig_core::http_client::framing::SseFramer;
use rig_core::providers::openai::wire::Chat;
use rig_core::wire::{Body, Encoded, WireFrame};
use std::collections::VecDeque;
use std::error::Error;
use std::time::Duration;

/// A server that does not take the connection by then is down.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No server has a reason to send more in one event; without a limit one without an end fills the memory.
const EVENT_BYTES_MAX: usize = 4 << 20;
/// How much of a refusal is read to find the server's own words.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Sends rig's requests and cuts the answers into its frames.
#[derive(Clone)]
pub(super) struct Http(reqwest::Client);

impl Http {
    /// The client, or what is in the way of one.
    pub(super) fn new() -> Result<Self, String> {
        // reqwest panics without one, even for plain HTTP. If the process has chosen another, that one stays.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            // The conversation goes to the host that was configured and to no other.
            .redirect(reqwest::redirect::Policy::none())
            .build();
        client.map(Self).map_err(chain)
    }
}

impl Transport<Chat> for Http {
    fn send(&self, payload: Encoded, _: Exchange) -> Opening<WireFrame> {
        let client = self.0.clone();
        let unreached = |error| ProviderError::Provider(chain(error));
        Opening::new(async move {
            // The other kind is for uploads.
            let bytes = |body| if let Body::Bytes(bytes) = body { bytes } else { Vec::new() };
            let request = payload.request.map(bytes);
            let mut request = reqwest::Request::try_from(request).map_err(unreached)?;
            request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
            let response = client.execute(request).await.map_err(unreached)?;
            if response.status() != 200 {
                return Err(refusal(response).await);
            }
            let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            match kind {
                Some(kind) if !kind.to_ascii_lowercase().starts_with("text/event-stream") => {
                    Err(ProviderError::Provider(format!("it answered with {kind}, not with a stream")))
                }
                _ => Ok(Opened::new(frames(response))),
            }
        })
    }
}

fn frames(response: reqwest::Response) -> impl Stream<Item = Result<WireFrame, ProviderError>> {
    let state = (response, SseFramer::new(), VecDeque::new(), Pieces::default());
    stream::try_unfold(state, |(mut response, mut framer, mut ready, mut pieces)| async move {
        loop {
            if let Some(data) = ready.pop_front() {
                let frame = pieces.frame(data).map_err(|error| match error {
                    ModelError::Upstream(said) => ProviderError::Provider(said),
                    ModelError::Malformed(said) => ProviderError::Response(said),
                })?;
                return Ok(Some((frame, (response, framer, ready, pieces))));
            }
            let broken = |error| ProviderError::Response(format!("the connection broke: {}", chain(error)));
            let Some(chunk) = response.chunk().await.map_err(broken)? else {
                return Ok(None);
            };
            ready.extend(framer.push(&chunk).map(|event| event.data).filter(|data| !data.trim().is_empty()));
            if framer.pending() > EVENT_BYTES_MAX {
                return Err(ProviderError::Response("an event of it is too long".to_owned()));
            }
        }
    })
}

/// The server's no, with as much of its body as may be needed.
async fn refusal(mut response: reqwest::Response) -> ProviderError {
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    ProviderError::from_http_response(status, String::from_utf8_lossy(&body))
}

/// The error and its causes. Only the first names the URL, and that one leaves it out here.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
