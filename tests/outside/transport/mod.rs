//! Abuse of heads, bodies, streams and connections by other users, before the server knows the request.

mod browsers;
mod connections;
mod counts;
mod half_closed;
mod heads;
mod http2;
mod json;
mod paths;
mod readers;
mod uploads;

use holdpoint_testkit::Client;
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The longest time that a test waits for the server to answer or to close.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between the bytes of a slow client.
const PACE: Duration = Duration::from_millis(20);
/// A short deadline that a well-behaved client still meets on a busy machine.
const SOON: Duration = Duration::from_secs(1);

/// A connection on which the test writes raw bytes.
#[derive(Debug)]
struct RawConnection {
    socket: TcpStream,
    host: String,
    read: Vec<u8>,
}

/// An HTTP/1.1 response.
#[derive(Debug)]
struct HttpResponse {
    status: u16,
    head: String,
    body: String,
}

impl HttpResponse {
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

impl RawConnection {
    async fn to(client: &Client) -> Self {
        let host = client.base.trim_start_matches("http://").to_owned();
        let socket = TcpStream::connect(&host).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, host, read: Vec::new() }
    }

    async fn writes(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// A request head with these lines after the request line.
    fn head(&self, first: &str, lines: &[&str]) -> String {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        format!("{first} HTTP/1.1\r\nhost: {}\r\n{lines}\r\n", self.host)
    }

    /// Reads more bytes. Returns false at the end of the connection or after an error.
    async fn reads(&mut self) -> bool {
        let read = timeout(PATIENCE, self.socket.read_buf(&mut self.read)).await;
        read.expect("the server sends more or closes").is_ok_and(|count| count > 0)
    }

    /// All bytes until the server closes the connection.
    async fn receives_all(mut self) -> String {
        while self.reads().await {}
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Writes byte by byte until the server closes. Returns all received bytes.
    async fn drips(self, bytes: impl Iterator<Item = u8>) -> String {
        let (mut from, mut to) = self.socket.into_split();
        let writing = async {
            for byte in bytes {
                if to.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(PACE).await;
            }
            // All bytes are written, and the server has not closed.
            std::future::pending::<()>().await;
        };
        let mut read = self.read;
        let reading = async { while from.read_buf(&mut read).await.is_ok_and(|count| count > 0) {} };
        tokio::select! {
            () = writing => {}
            ended = timeout(PATIENCE, reading) => ended.expect("the server closes the connection"),
        }
        String::from_utf8_lossy(&read).into_owned()
    }

    /// The head of the next response.
    async fn answer_head(&mut self) -> String {
        let end = loop {
            match self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => assert!(self.reads().await, "no answer: {:?}", String::from_utf8_lossy(&self.read)),
            }
        };
        String::from_utf8(self.read.drain(..end).collect()).unwrap().to_lowercase()
    }

    /// The next response.
    async fn answer(&mut self) -> HttpResponse {
        let head = self.answer_head().await;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            assert!(self.reads().await, "an answer broke off: {head}");
        }
        let body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        HttpResponse { status, head, body }
    }
}

/// Asserts that the server still answers a valid request.
async fn is_well(client: &Client) {
    client.get("/healthz").await.has_status(200);
}
