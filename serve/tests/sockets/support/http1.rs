//! A client over HTTP/1.1 that sends raw bytes.

use super::{PATIENCE, Running};
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The interval between the bytes of a slow client.
pub(crate) const PACE: Duration = Duration::from_millis(20);

/// A connection over HTTP/1.1.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    read: Vec<u8>,
}

/// A response over HTTP/1.1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Client {
    pub(crate) async fn connect(server: &Running) -> Self {
        Self { socket: TcpStream::connect(server.address).await.unwrap(), read: Vec::new() }
    }

    /// Connects with a small receive buffer.
    pub(crate) async fn narrow(server: &Running) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        Self { socket: socket.connect(server.address).await.unwrap(), read: Vec::new() }
    }

    /// Connects from this address of the machine.
    pub(crate) async fn from(server: &Running, ip: [u8; 4]) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((IpAddr::from(ip), 0).into()).unwrap();
        Self { socket: socket.connect(server.address).await.unwrap(), read: Vec::new() }
    }

    /// Connects and gets `/`. The connection stays open.
    pub(crate) async fn served(server: &Running) -> Self {
        let mut client = Self::connect(server).await;
        assert_eq!(client.get("/").await.body, "ok");
        client
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends the head of a request.
    pub(crate) async fn send_head(&mut self, first: &str, lines: &[&str]) {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(format!("{first} HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n")).await;
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.send_head(&format!("GET {path}"), &[]).await;
        self.reply().await
    }

    /// Reads more. Returns false at the end of the connection or after an error.
    async fn reads(&mut self) -> bool {
        let read = timeout(PATIENCE, self.socket.read_buf(&mut self.read)).await;
        read.expect("the server sends more or closes").is_ok_and(|count| count > 0)
    }

    /// The head of the next response.
    pub(crate) async fn reply_head(&mut self) -> String {
        let end = loop {
            match self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => assert!(self.reads().await, "no response: {}", self.read.escape_ascii()),
            }
        };
        String::from_utf8(self.read.drain(..end).collect()).unwrap()
    }

    /// The next response. Its length is known.
    pub(crate) async fn reply(&mut self) -> Reply {
        let head = self.reply_head().await;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            assert!(self.reads().await, "the response ends early: {head}");
        }
        let body = String::from_utf8(self.read.drain(..length).collect()).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        Reply { status, head, body }
    }

    /// All bytes until the server closes the connection.
    pub(crate) async fn rest(mut self) -> Vec<u8> {
        while self.reads().await {}
        self.read
    }

    /// Sends these bytes, and returns all bytes until the server closes the connection.
    pub(crate) async fn send_and_read(self, bytes: &[u8]) -> Vec<u8> {
        self.read_while(async |mut to| {
            // The server may close before it has read everything.
            let _written = to.write_all(bytes).await;
            to
        })
        .await
    }

    /// Sends these bytes one by one until the server closes the connection. Returns all received bytes.
    pub(crate) async fn drip(self, bytes: impl Iterator<Item = u8>) -> Vec<u8> {
        self.read_while(async |mut to| {
            for byte in bytes {
                if to.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(PACE).await;
            }
            to
        })
        .await
    }

    /// Returns all bytes until the server closes the connection, even if `writing` does not end.
    async fn read_while(self, writing: impl AsyncFnOnce(OwnedWriteHalf) -> OwnedWriteHalf) -> Vec<u8> {
        let (mut from, to) = self.socket.into_split();
        let mut read = self.read;
        let writing = async {
            // The half that writes closes only after the server.
            let _open = writing(to).await;
            std::future::pending::<()>().await;
        };
        let reading = async { while from.read_buf(&mut read).await.is_ok_and(|count| count > 0) {} };
        tokio::select! {
            () = writing => {}
            ended = timeout(PATIENCE, reading) => ended.expect("the server closes the connection"),
        }
        read
    }

    /// Whether no byte has arrived, and the connection is open.
    pub(crate) fn is_silent(&self) -> bool {
        let read = self.socket.try_read(&mut [0]).map_err(|error| error.kind());
        self.read.is_empty() && read == Err(io::ErrorKind::WouldBlock)
    }
}
