//! A client that disconnects. It writes its bytes itself: a library would send its own closing frames, and
//! would not report when bytes are on the wire.

use super::{Client, http2};
use serde_json::Value;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time within which a server has to send data, or to close the connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectKind {
    /// HTTP/1.1: the client closes its end; the server notices after it has read everything.
    Fin,
    /// HTTP/1.1: the client resets the connection, which the server notices at once.
    Rst,
    /// HTTP/2: the client resets this one stream; the connection stays.
    StreamReset,
    /// HTTP/2: the client closes its end of the connection without a frame about the stream.
    Http2Fin,
    /// HTTP/2: the client resets the connection.
    Http2Rst,
}

impl DisconnectKind {
    pub const ALL: [Self; 5] = [Self::Fin, Self::Rst, Self::StreamReset, Self::Http2Fin, Self::Http2Rst];

    fn is_http2(self) -> bool {
        !matches!(self, Self::Fin | Self::Rst)
    }
}

/// The part of a request that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SentPart {
    Whole,
    /// The request without its end (its last byte, or END_STREAM). The bytes sent are valid JSON by
    /// themselves, so a server that takes them for the whole body could start work.
    Half,
}

/// A client on its own connection, with one request that it abandons.
#[derive(Debug)]
pub struct Leaver {
    how: DisconnectKind,
    socket: TcpStream,
    address: String,
    read: Vec<u8>,
}

impl Leaver {
    /// Posts this body and reads nothing yet.
    pub async fn sends(client: &Client, how: DisconnectKind, path: &str, body: &Value) -> Self {
        let mut leaver = Self::connects(client, how).await;
        leaver.posts(path, &body.to_string(), SentPart::Whole).await;
        leaver
    }

    /// Posts all but the end of this body, and waits until the server has started to read it.
    pub async fn sends_half(client: &Client, how: DisconnectKind, path: &str, body: &Value) -> Self {
        let mut leaver = Self::connects(client, how).await;
        leaver.posts(path, &body.to_string(), SentPart::Half).await;
        leaver
    }

    async fn connects(client: &Client, how: DisconnectKind) -> Self {
        let address = client.base.trim_start_matches("http://").to_owned();
        let socket = TcpStream::connect(&address).await.unwrap();
        // Each write is sent at once, in its own segment.
        socket.set_nodelay(true).unwrap();
        Self { how, socket, address, read: Vec::new() }
    }

    async fn posts(&mut self, path: &str, body: &str, part: SentPart) {
        if self.how.is_http2() {
            self.posts_over_http2(path, body, part).await;
        } else {
            self.posts_over_http1(path, body, part).await;
        }
    }

    async fn posts_over_http1(&mut self, path: &str, body: &str, part: SentPart) {
        let (expect, missing) = match part {
            SentPart::Whole => ("", 0),
            SentPart::Half => ("expect: 100-continue\r\n", 1),
        };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n{expect}\
             content-length: {}\r\n\r\n",
            self.address,
            body.len() + missing
        );
        self.writes(head.as_bytes()).await;
        if part == SentPart::Half {
            // The server sends `100 Continue` when it begins to read the body.
            self.receives_head().await;
        }
        self.writes(body.as_bytes()).await;
    }

    async fn posts_over_http2(&mut self, path: &str, body: &str, part: SentPart) {
        let end = if part == SentPart::Whole { http2::END_STREAM } else { 0 };
        let head = http2::head("POST", path, &self.address);
        let request = [
            http2::PREFACE,
            &http2::frame(http2::SETTINGS, 0, 0, &[]),
            &http2::frame(http2::HEADERS, http2::END_HEADERS, http2::FIRST, &head),
            &http2::frame(http2::DATA, end, http2::FIRST, body.as_bytes()),
        ];
        self.writes(&request.concat()).await;
        if part == SentPart::Half {
            // Frames are read in order: a server that answers this ping has read the frames before it.
            self.writes(&http2::frame(http2::PING, 0, 0, &[0; 8])).await;
            let answer = |frame: &http2::Frame<'_>| frame.kind == http2::PING && frame.flags == http2::ACK;
            self.reads_frame("its answer to a PING", answer).await;
        }
    }

    async fn writes(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Reads more; false at the end. Nothing follows after an error.
    async fn reads(&mut self) -> bool {
        let read = timeout(PATIENCE, self.socket.read_buf(&mut self.read)).await;
        read.expect("the server goes on, or lets go").is_ok_and(|count| count > 0)
    }

    async fn reads_frame(&mut self, what: &str, is_it: impl Fn(&http2::Frame<'_>) -> bool) {
        while !http2::frames(&self.read).iter().any(&is_it) {
            assert!(self.reads().await, "the server ended before {what}");
        }
    }

    /// The body of the response to this stream so far; `None` before its head.
    fn received_body(&self, stream: u32) -> Option<String> {
        if !self.how.is_http2() {
            let read = String::from_utf8_lossy(&self.read);
            return read.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        }
        let mut received_body = None;
        for frame in http2::frames(&self.read).iter().filter(|frame| frame.stream == stream) {
            let body: &mut String = match frame.kind {
                http2::HEADERS | http2::DATA => received_body.get_or_insert_default(),
                _ => continue,
            };
            if frame.kind == http2::DATA {
                body.push_str(&String::from_utf8_lossy(frame.payload));
            }
        }
        received_body
    }

    /// Reads until the head of the response has arrived.
    pub async fn receives_head(&mut self) {
        self.receives("").await;
    }

    /// Reads until the body of the response contains this text.
    pub async fn receives(&mut self, text: &str) {
        while !self.received_body(http2::FIRST).is_some_and(|received_body| received_body.contains(text)) {
            assert!(
                self.reads().await,
                "the server ended before {text:?}: {:?}",
                self.received_body(http2::FIRST)
            );
        }
    }

    /// Disconnects. After a FIN, waits until the server has closed the connection too. A connection that
    /// stays serves another request, and is returned.
    pub async fn leaves(mut self) -> Option<TcpStream> {
        match self.how {
            DisconnectKind::Fin | DisconnectKind::Http2Fin => {
                self.socket.shutdown().await.unwrap();
                while self.reads().await {}
                None
            }
            DisconnectKind::Rst | DisconnectKind::Http2Rst => {
                self.socket.set_zero_linger().unwrap();
                None
            }
            DisconnectKind::StreamReset => {
                self.writes(&http2::frame(http2::RST_STREAM, 0, http2::FIRST, &http2::CANCEL)).await;
                let head = http2::head("GET", "/tools", &self.address);
                let flags = http2::END_HEADERS | http2::END_STREAM;
                self.writes(&http2::frame(http2::HEADERS, flags, http2::SECOND, &head)).await;
                let is_last = |frame: &http2::Frame<'_>| {
                    frame.stream == http2::SECOND && frame.flags & http2::END_STREAM != 0
                };
                self.reads_frame("the end of another answer", is_last).await;
                let tools = self.received_body(http2::SECOND).unwrap();
                assert!(tools.contains("wait_for_me"), "{tools}");
                Some(self.socket)
            }
        }
    }
}
