//! What strangers may do to the server before it knows what they want: with heads, bodies, streams and connections.

mod browsers;
mod connections;
mod counts;
mod heads;
mod http2;
mod json;
mod paths;
mod readers;
mod uploads;

use crate::support::Client;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a server may be silent that has something to say, or should let go.
const PATIENCE: Duration = Duration::from_secs(30);
/// The pace of those who come slowly.
const PACE: Duration = Duration::from_millis(20);
/// A deadline that is soon over, and long enough for a client that means well on a busy machine.
const SOON: Duration = Duration::from_secs(1);

/// A connection whose bytes a test writes itself.
#[derive(Debug)]
struct Raw {
    socket: TcpStream,
    host: String,
    read: Vec<u8>,
}

/// An answer of HTTP/1.1.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Raw {
    async fn to(client: &Client) -> Self {
        let host = client.base.trim_start_matches("http://").to_owned();
        let socket = TcpStream::connect(&host).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, host, read: Vec::new() }
    }

    async fn writes(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// The head of a request with these lines behind its first.
    fn head(&self, first: &str, lines: &[&str]) -> String {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        format!("{first} HTTP/1.1\r\nhost: {}\r\n{lines}\r\n", self.host)
    }

    /// Reads on; false at the end. After an error nothing follows either.
    async fn reads(&mut self) -> bool {
        let read = timeout(PATIENCE, self.socket.read_buf(&mut self.read)).await;
        read.expect("the server goes on, or lets go").is_ok_and(|count| count > 0)
    }

    /// All that comes until the server lets go.
    async fn until_the_end(mut self) -> String {
        while self.reads().await {}
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Writes byte by byte until the server lets go; all that came.
    async fn drips(self, bytes: impl Iterator<Item = u8>) -> String {
        let (mut from, mut to) = self.socket.into_split();
        let writing = async {
            for byte in bytes {
                if to.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(PACE).await;
            }
            // There is no more to say, and nobody lets go.
            std::future::pending::<()>().await;
        };
        let mut read = self.read;
        let reading = async { while from.read_buf(&mut read).await.is_ok_and(|count| count > 0) {} };
        tokio::select! {
            () = writing => {}
            ended = timeout(PATIENCE, reading) => ended.expect("the server lets go"),
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// The head of the next answer.
    async fn answer_head(&mut self) -> String {
        let end = loop {
            match self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => assert!(self.reads().await, "no answer: {:?}", String::from_utf8_lossy(&self.read)),
            }
        };
        String::from_utf8(self.read.drain(..end).collect()).unwrap().to_lowercase()
    }

    /// The next answer.
    async fn answer(&mut self) -> Reply {
        let head = self.answer_head().await;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            assert!(self.reads().await, "an answer broke off: {head}");
        }
        let body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Reply { status, head, body }
    }
}

/// The server answers whoever asks well.
async fn is_well(client: &Client) {
    assert_eq!(client.get("/healthz").await.status, 200);
}
