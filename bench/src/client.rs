//! A client of chat streams, on one connection. It parses nothing of a stream that it only counts, so that it costs
//! far less than a server.

use crate::upstream::TOKEN;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The end of every stream.
const DONE: &[u8] = b"[DONE]";

pub(crate) struct Client {
    address: SocketAddr,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// A whole stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) tokens: u64,
    /// From the request to the first token; `None` without tokens.
    pub(crate) first_token: Option<Duration>,
    /// From the request to the end.
    pub(crate) total: Duration,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn new(port: u16) -> Self {
        Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), connection: None }
    }

    /// Posts a body and reads the stream to its end. Only a stream with its end is a success.
    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Result<Stream> {
        let began = Instant::now();
        let mut connection = match self.connection.take().filter(SendRequest::is_ready) {
            Some(connection) => connection,
            None => self.connect().await.context("connect")?,
        };
        let request = Request::post(path)
            .header("host", self.address.to_string())
            .header("content-type", "application/json")
            .body(Full::from(body.to_string()))?;
        let response = connection.send_request(request).await?;
        let status = response.status();
        let mut frames = response.into_body();
        let mut stream = Stream { tokens: 0, first_token: None, total: Duration::ZERO, body: Vec::new() };
        while let Some(frame) = frames.frame().await {
            let piece = frame?.into_data().unwrap_or_default();
            let tokens = memchr::memchr_iter(TOKEN, &piece).count();
            if tokens > 0 {
                stream.first_token.get_or_insert_with(|| began.elapsed());
                stream.tokens += u64::try_from(tokens)?;
            }
            stream.body.extend_from_slice(&piece);
        }
        stream.total = began.elapsed();
        let text = || String::from_utf8_lossy(&stream.body);
        ensure!(status == StatusCode::OK, "status {status}: {}", text());
        ensure!(memchr::memmem::rfind(&stream.body, DONE).is_some(), "a stream without its end: {}", text());
        self.connection = Some(connection);
        Ok(stream)
    }

    #[expect(clippy::disallowed_methods, reason = "the task ends with its connection")]
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}
