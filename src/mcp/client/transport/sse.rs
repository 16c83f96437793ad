//! The transport of earlier servers over HTTP: one stream of events, whose first event names the address of the messages.

use crate::agent::Tasks;
use crate::mcp::client::entry::Endpoint;
use crate::mcp::client::failure;
use crate::mcp::client::log::log_rate::LogRate;
use crate::mcp::client::message::raw::{MESSAGE_BYTES_MAX, admitted};
use crate::mcp::client::transport::authorization::{self, Authorization, Unsent};
use crate::mcp::client::transport::http::bounded;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use holdpoint_egress::chain;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use rmcp::transport::common::client_side_sse::BoxedSseResponse;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
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
pub(in crate::mcp) type Lines = (DuplexStream, DuplexStream);

/// Opens the stream of a server. The error is for the log.
pub(in crate::mcp) async fn open(
    endpoint: &Endpoint,
    headers: &HeaderMap,
    tasks: &Tasks,
    log: Arc<LogRate>,
) -> Result<Lines, String> {
    let begun = timeout(BEGINNING, begin(endpoint, headers)).await;
    let (events, address) = begun.map_err(|_elapsed| "its stream names no address in time".to_owned())??;
    let ((messages, to), (from, sent)) = (duplex(AHEAD), duplex(AHEAD));
    let posts = Posts {
        client: endpoint.client.clone(),
        authorization: endpoint.authorization.clone(),
        below: below(&endpoint.url, &address),
        address,
        moved: OnceLock::new(),
        headers: headers.clone(),
    };
    tasks.spawn_background(async move {
        // The end of one side ends the other.
        let _over = pass(events, from, to, &posts, &log).await;
    });
    Ok((messages, sent))
}

/// Opens the stream and returns it after its first event, with the address of the messages.
async fn begin(
    Endpoint { url, client, authorization, .. }: &Endpoint,
    headers: &HeaderMap,
) -> Result<(BoxedSseResponse, Url), String> {
    let request = client.get(url.clone()).headers(headers.clone()).header(ACCEPT, "text/event-stream");
    let response =
        authorization::send(authorization.as_deref(), request).await.map_err(|unsent| match unsent {
            Unsent::NoToken => "there is no access token".to_owned(),
            Unsent::Failed(error) => chain(error),
        })?;
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
    from: DuplexStream,
    mut to: DuplexStream,
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
/// The same for a message that was not sent.
const UNAUTHORIZED: u16 = 401;

/// Where the messages go.
struct Posts {
    client: Client,
    authorization: Option<Arc<Authorization>>,
    /// The address that the stream names.
    address: Url,
    /// The same below the path of the entry, if it may be meant.
    below: Option<Url>,
    /// The address that took the first message, if it is the one below.
    moved: OnceLock<Url>,
    headers: HeaderMap,
}

impl Posts {
    /// Sends a message. Returns the answer to a request that is refused: its own answer would come as an event.
    async fn send(&self, message: String) -> Option<String> {
        let read = serde_json::from_str::<Value>(&message).ok().filter(|it| it.get("method").is_some());
        let begins = read.as_ref().is_some_and(|it| it.get("method") == Some(&json!("initialize")));
        let id = read.and_then(|it| it.get("id").cloned());
        let address = self.moved.get().unwrap_or(&self.address);
        let mut answered = self.post(address, message.clone()).await;
        let is_away = answered.as_ref().is_ok_and(|response| response.status().as_u16() == 404);
        let below = self.below.as_ref().filter(|_| begins && is_away);
        if let Some(below) = below {
            // The first message has no effect. Every later one goes to one address alone.
            let again = self.post(below, message).await;
            if again.as_ref().is_ok_and(|response| response.status().is_success()) {
                let _first = self.moved.set(below.clone());
                answered = again;
            }
        }
        let error = match answered {
            Ok(response) if response.status().is_success() => return None,
            Ok(response) => {
                let status = response.status();
                let retry_after = response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok());
                let words = match begins && is_away {
                    true => format!("HTTP {status} at {}, which its stream names", self.address),
                    false => format!("HTTP {status}"),
                };
                failure::of_status(status.as_u16(), retry_after, words)
            }
            Err(Unsent::NoToken) => {
                failure::of_status(UNAUTHORIZED, None, "there is no access token".to_owned())
            }
            Err(Unsent::Failed(error)) => failure::of_status(BAD_GATEWAY, None, chain(error)),
        };
        Some(json!({ "jsonrpc": "2.0", "id": id?, "error": error }).to_string())
    }

    async fn post(&self, to: &Url, message: String) -> Result<Response, Unsent> {
        let request = self.client.post(to.clone()).headers(self.headers.clone());
        let request = request.header(CONTENT_TYPE, "application/json").body(message);
        authorization::send(self.authorization.as_deref(), request).await
    }
}

/// Returns the address below the folder of `url` whose path a server behind a proxy may mean by this one: the proxy puts a
/// prefix in front of the paths that the server knows. `None` if the path has the prefix already.
fn below(url: &Url, address: &Url) -> Option<Url> {
    let (folder, _name) = url.path().rsplit_once('/')?;
    let folder: Vec<&str> = folder.split('/').skip(1).collect();
    let named: Vec<&str> = address.path().split('/').skip(1).collect();
    // The server may know the end of the folder.
    let known =
        (0..=folder.len()).find(|known| folder.get(*known..).is_some_and(|end| named.starts_with(end)))?;
    let prefix = folder.get(..known).filter(|prefix| !prefix.is_empty())?;
    let mut below = address.clone();
    below.set_path(&prefix.iter().chain(&named).fold(String::new(), |path, part| format!("{path}/{part}")));
    (!named.starts_with(&folder)).then_some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_below_the_prefix_of_a_proxy_keeps_what_the_server_knows_of_its_path() {
        for (url, named, expected) in [
            ("https://a.example/mcp/sse", "/messages?id=1", Some("https://a.example/mcp/messages?id=1")),
            ("https://a.example/api/v1/sse", "/v1/messages/", Some("https://a.example/api/v1/messages/")),
            ("https://a.example/x/y/sse", "/z/messages", Some("https://a.example/x/y/z/messages")),
            ("https://a.example/mcp/sse", "/mcp/messages", None),
            ("https://a.example/mcp/sse", "messages", None),
            ("https://a.example/sse", "/messages", None),
            ("https://a.example/", "/messages", None),
        ] {
            let url = Url::parse(url).unwrap();
            let found = below(&url, &url.join(named).unwrap());
            assert_eq!(found.as_ref().map(Url::as_str), expected, "{url} {named}");
        }
    }
}
