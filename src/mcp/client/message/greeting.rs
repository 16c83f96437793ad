//! The first words with the process of a server: which handshake it has.
//!
//! A program that has written nothing may be starting, so it is not ended and started again. A server of an earlier version
//! may leave a request unanswered that it does not know: a `ping`, which it knows, shows that it has started. It gets
//! `initialize` only then, or after a long silence, because a server that has both handshakes takes that for its choice.

use rmcp::model::{ClientConfig, JsonRpcMessage, ProtocolVersion, ServerJsonRpcMessage};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The ids of the requests. The library counts from 0.
const DISCOVER: u64 = 1_000_000_001;
const INITIALIZE: u64 = 1_000_000_002;
const PING: u64 = 1_000_000_003;
/// How long a server that has started may leave `server/discover` unanswered.
const DISCOVERY: Duration = Duration::from_secs(2);

/// The handshake of a server.
#[derive(Debug, PartialEq)]
pub(in crate::mcp) enum Greeted {
    /// It begins with `server/discover`.
    Discover,
    /// It begins with `initialize`.
    Initialize,
    /// The server has answered `initialize` with this result, and left the other requests unanswered if so.
    Initialized { result: Value, was_silent: bool },
    /// It begins with `server/discover`, and got `initialize` before it could answer.
    TooLate,
    /// Its program has ended. Some servers end at a first request that is not `initialize`.
    Ended,
}

/// Finds the handshake of a server that is starting. The error is for the log.
pub(in crate::mcp) async fn greet(
    messages: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    config: &ClientConfig,
    start_timeout: Duration,
) -> Result<Greeted, String> {
    let greeted = timeout(start_timeout, answered(messages, to, config, start_timeout / 2)).await;
    greeted.map_err(|_elapsed| "it did not start in time".to_owned())?
}

async fn answered(
    messages: &mut (impl AsyncBufRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    config: &ClientConfig,
    longest_silence: Duration,
) -> Result<Greeted, String> {
    let newest = ProtocolVersion::V_2026_07_28;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": newest,
        "io.modelcontextprotocol/clientInfo": config.client_info,
        "io.modelcontextprotocol/clientCapabilities": config.capabilities,
    });
    write(to, DISCOVER, "server/discover", json!({ "_meta": &meta })).await?;
    let (silence, mut lines) = (sleep(longest_silence), messages.lines());
    let unanswered = sleep(DISCOVERY);
    tokio::pin!(silence, unanswered);
    let (mut is_pinged, mut is_asked_again, mut is_older) = (false, false, false);
    let mut discovery = None;
    loop {
        let over = async {
            match discovery {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let line = tokio::select! {
            line = lines.next_line() => line.map_err(|error| error.to_string())?,
            () = over, if !is_asked_again => return Ok(Greeted::Initialize),
            () = &mut unanswered, if !is_pinged => {
                is_pinged = true;
                // With the metadata it is no choice of the older handshake.
                write(to, PING, "ping", json!({ "_meta": &meta })).await?;
                continue;
            }
            () = &mut silence, if !is_asked_again => {
                is_asked_again = true;
                write(to, INITIALIZE, "initialize", json!(config)).await?;
                continue;
            }
        };
        let Some(line) = line else { return Ok(Greeted::Ended) };
        let Ok(Value::Object(mut answer)) = serde_json::from_str::<Value>(&line) else { continue };
        match answer.get("id").and_then(number) {
            Some(DISCOVER) => {
                let versions = answer.get("result").and_then(|result| result.get("supportedVersions"));
                let versions = versions.and_then(Value::as_array);
                if versions.is_some_and(|versions| versions.contains(&json!(newest))) {
                    return Ok(if is_asked_again { Greeted::TooLate } else { Greeted::Discover });
                }
                if !is_asked_again {
                    return Ok(Greeted::Initialize);
                }
                is_older = true;
            }
            Some(INITIALIZE) => {
                return match answer.remove("result") {
                    Some(result) => Ok(Greeted::Initialized { result, was_silent: !is_older }),
                    None => Err(format!("it refuses the handshake: {}", json!(answer.get("error")))),
                };
            }
            Some(PING) => {
                is_older = true;
                discovery = Instant::now().checked_add(DISCOVERY);
            }
            _ => {}
        }
    }
}

async fn write(
    to: &mut (impl AsyncWrite + Unpin),
    id: u64,
    method: &str,
    params: Value,
) -> Result<(), String> {
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let written = async {
        to.write_all(format!("{message}\n").as_bytes()).await?;
        to.flush().await
    };
    written.await.map_err(|error: std::io::Error| error.to_string())
}

/// Whether a message is a late answer to a request from before the connection.
pub(in crate::mcp) fn is_greeting(message: &ServerJsonRpcMessage) -> bool {
    let id = match message {
        JsonRpcMessage::Response(response) => Some(&response.id),
        JsonRpcMessage::Error(error) => error.id.as_ref(),
        _ => None,
    };
    id.and_then(|id| number(&json!(id))).is_some_and(|id| matches!(id, DISCOVER | INITIALIZE | PING))
}

/// Returns the number of an id. Some servers return it as a text.
fn number(id: &Value) -> Option<u64> {
    id.as_u64().or_else(|| id.as_str()?.parse().ok())
}
