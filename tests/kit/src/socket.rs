//! A client of the WebSocket.

use super::Client;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// The time within which a server has to send data.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open socket.
pub struct Socket(pub WebSocketStream<TcpStream>);

impl Socket {
    /// Opens a socket at this path with these headers, or returns the status of the refusal.
    pub async fn open(client: &Client, path: &str, headers: &[(&'static str, &str)]) -> Result<Self, u16> {
        let address = client.base.strip_prefix("http://").unwrap();
        let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }

    pub async fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).await.unwrap();
    }

    /// The next text, or the code of a close frame; `None` after a break.
    pub async fn next(&mut self) -> Option<Result<Value, u16>> {
        // Over all messages: a server that has nothing to send still sends pings.
        let next = async {
            loop {
                match self.0.next().await?.ok()? {
                    Message::Text(text) => return Some(Ok(serde_json::from_str(&text).unwrap())),
                    Message::Close(frame) => return Some(Err(frame.map_or(1005, |frame| frame.code.into()))),
                    _ => {}
                }
            }
        };
        timeout(PATIENCE, next).await.expect("the server sends a text or closes the socket")
    }

    /// Sends this decision and returns its answer; other messages are skipped.
    pub async fn ask(&mut self, id: &Value, decide: &Value) -> (u64, Value) {
        self.send(&json!({ "id": id, "decide": decide }).to_string()).await;
        self.answer(id).await
    }

    pub async fn answer(&mut self, id: &Value) -> (u64, Value) {
        loop {
            let output = self.next().await.unwrap().unwrap();
            if output.get("event").is_none() {
                assert_eq!(&output["id"], id, "{output}");
                return (output["status"].as_u64().unwrap(), output["body"].clone());
            }
        }
    }
}
