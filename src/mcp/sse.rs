//! The transport of earlier servers over HTTP: one stream of events, whose first event names the address of the messages.

use super::failure;
use super::http::bounded;
use super::log_rate::LogRate;
use super::raw::{MESSAGE_BYTES_MAX, admitted};
use crate::agent::Tasks;
use crate::egress::chain;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Url};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, duplex};
use tokio::time::timeout;

/// How long a server may take to name the address of the messages.
const BEGINNING: Duration = Duration::from_secs(10);
/// How much is read ahead of the connection, in bytes.
const AHEAD: usize = 64 * 1024;
/// Maximum number of messages that are sent at once.
const POSTS_MAX: usize = 64;

/// The messages of a server, and those that are sent to it, one a line each.
pub(super) type Lines = (DuplexStream, DuplexStream);

/// Opens the stream of a server. The error is for the log.
pub(super) async fn open(
    client: &Client,
    url: &Url,
    headers: &HeaderMap,
    tasks: &Tasks,
    log: Arc<LogRate>,
) -> Result<Lines, String> {
    let begun = timeout(BEGINNING, begin(client, url, headers)).await;
    let (events, address) = begun.map_err(|_elapsed| "its stream names no address in time".to_owned())??;
    let ((messages, to), (from, sent)) = (duplex(AHEAD), duplex(AHEAD));
    let posts = Posts { client: client.clone(), address, headers: headers.clone() };
    tasks.spawn_background(async move {
        // The end of one side ends the other.
        let _over = pass(events, (from, to), &posts, &log).await;
    });
    Ok((messages, sent))
}

/// Opens the stream and returns it after its first event, with the address of the messages.
async fn begin(client: &Client, url: &Url, headers: &HeaderMap) -> Result<(BoxedSseResponse, Url), String> {
    let request = client.get(url.clone()).headers(headers.clone()).header(ACCEPT, "text/event-stream");
    let response = request.send().await.map_err(chain)?;
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !response.status().is_success() || !kind.starts_with("text/event-stream") {
        return Err(format!("it has no stream of events: HTTP {}", response.status()));
    }
    let mut events = bounded(response, MESSAGE_BYTES_MAX);
    while let Some(Ok(event)) = events.next().await {
        if event.event.as_deref() == Some("endpoint") {
            let data = event.data.unwrap_or_default();
            let address = url.join(data.trim()).map_err(|_| "its stream names no address".to_owned())?;
            if address.origin() != url.origin() {
                return Err(format!("its stream names {address}, which is of another origin"));
            }
            return Ok((events, address));
        }
    }
    Err("its stream names no address".to_owned())
}

async fn pass(
    mut events: BoxedSseResponse,
    (from, mut to): (DuplexStream, DuplexStream),
    posts: &Posts,
    log: &LogRate,
) -> std::io::Result<()> {
    let (mut lines, mut sending) = (BufReader::new(from).lines(), FuturesUnordered::new());
    loop {
        let line = tokio::select! {
            event = events.next() => {
                let Some(Ok(event)) = event else { return Ok(()) };
                let is_message = event.event.as_deref().is_none_or(|kind| kind == "message");
                let data = event.data.filter(|_| is_message).unwrap_or_default();
                admitted(&data, log).map(|message| message.replace(['\n', '\r'], " "))
            }
            line = lines.next_line(), if sending.len() < POSTS_MAX => {
                let Some(line) = line? else { return Ok(()) };
                sending.push(posts.send(line));
                None
            }
            Some(error) = sending.next(), if !sending.is_empty() => error,
        };
        if let Some(line) = line.filter(|line| !line.is_empty()) {
            to.write_all(line.as_bytes()).await?;
            to.write_all(b"\n").await?;
        }
    }
}

/// The status in place of one, for a server that is not reached.
const BAD_GATEWAY: u16 = 502;

/// Where the messages go.
struct Posts {
    client: Client,
    address: Url,
    headers: HeaderMap,
}

impl Posts {
    /// Sends a message. Returns the answer to a request that is refused: its own answer would come as an event.
    async fn send(&self, message: String) -> Option<String> {
        let id = serde_json::from_str::<Value>(&message).ok().filter(|it| it.get("method").is_some());
        let id = id.and_then(|it| it.get("id").cloned());
        let request = self.client.post(self.address.clone()).headers(self.headers.clone());
        let answered = request.header(CONTENT_TYPE, "application/json").body(message).send().await;
        let error = match answered {
            Ok(response) if response.status().is_success() => return None,
            Ok(response) => {
                let status = response.status();
                let retry_after = response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok());
                failure::of_status(status.as_u16(), retry_after, format!("HTTP {status}"))
            }
            Err(error) => failure::of_status(BAD_GATEWAY, None, chain(error)),
        };
        Some(json!({ "jsonrpc": "2.0", "id": id?, "error": error }).to_string())
    }
}
