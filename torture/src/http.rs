//! A client that can disconnect in the middle of a request, in each way in which clients disconnect.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Method};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// The time after which the client gives up on an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The reason of a missing answer after the client disconnected.
pub const DISCONNECTED: &str = "the client disconnected";

/// The way in which a client disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectKind {
    /// HTTP/1.1: the client closes its end.
    Fin,
    /// HTTP/1.1: the client resets the connection.
    Rst,
    /// HTTP/2: the client closes its end.
    Http2,
}

impl DisconnectKind {
    pub const ALL: [Self; 3] = [Self::Fin, Self::Rst, Self::Http2];
}

/// A disconnect at this time after the request, unless the answer is complete before.
#[derive(Debug, Clone, Copy)]
pub struct Disconnect {
    /// The time after the request.
    pub after: Duration,
    pub kind: DisconnectKind,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    /// The path with the query.
    pub path: String,
    pub token: String,
    pub body: Option<Value>,
    pub dialect: Option<&'static str>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// The disconnect of the client, if it does not wait for the answer.
    pub disconnect: Option<Disconnect>,
}

/// The received part of a response.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
    /// The reason why the answer is incomplete.
    pub cut: Option<String>,
}

impl Response {
    /// Returns the body as JSON, or null.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }
}

impl Request {
    /// Creates a GET request.
    pub fn get(path: impl Into<String>, token: &str) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            token: token.to_owned(),
            body: None,
            dialect: None,
            headers: Vec::new(),
            disconnect: None,
        }
    }

    /// Creates a POST request.
    pub fn post(path: impl Into<String>, token: &str, body: Option<Value>) -> Self {
        Self { method: Method::POST, body, ..Self::get(path, token) }
    }

    /// Adds a disconnect.
    pub fn disconnecting(self, disconnect: Option<Disconnect>) -> Self {
        Self { disconnect, ..self }
    }

    fn build(&self, address: SocketAddr) -> Result<hyper::Request<Full<Bytes>>> {
        let body = self.body.as_ref().map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        let mut request = hyper::Request::builder()
            .method(self.method.clone())
            .uri(format!("http://{address}{}", self.path))
            .header("host", address.to_string())
            .header("authorization", format!("Bearer {}", self.token));
        if self.body.is_some() {
            request = request.header("content-type", "application/json");
        }
        if let Some(dialect) = self.dialect {
            request = request.header("x-stream-protocol", dialect);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        Ok(request.body(Full::new(body))?)
    }

    /// Sends the request over a connection of its own.
    ///
    /// # Errors
    /// No head of an answer arrived. The outcome of the request is unknown.
    pub async fn send(&self, address: SocketAddr) -> Result<Response> {
        let connecting = timeout(PATIENCE, TcpStream::connect(address));
        let socket = connecting.await.context("no connection in time")?.context("no connection")?;
        socket.set_nodelay(true)?;
        let mut received = None;
        let ended = {
            let mut exchange = pin!(self.exchange(socket, address, &mut received));
            let disconnected = async {
                match self.disconnect {
                    Some(disconnect) => sleep(disconnect.after).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                ended = &mut exchange => ended.err().map(|error| format!("{error:#}")),
                () = disconnected => Some(DISCONNECTED.to_owned()),
                () = sleep(PATIENCE) => Some("no answer in time".to_owned()),
            }
        };
        match (received, ended) {
            (Some(received), cut) => Ok(Response { cut, ..received }),
            (None, Some(why)) => bail!(why),
            (None, None) => bail!("no answer"),
        }
    }

    /// Sends the request and reads the answer. Dropping the future drops the connection.
    async fn exchange(
        &self,
        socket: TcpStream,
        address: SocketAddr,
        received: &mut Option<Response>,
    ) -> Result<()> {
        let request = self.build(address)?;
        match self.disconnect.map_or(DisconnectKind::Fin, |disconnect| disconnect.kind) {
            DisconnectKind::Http2 => {
                let io = TokioIo::new(socket);
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                let connection = async { connection.await.map_err(anyhow::Error::from) };
                read(sender.send_request(request), connection, received).await
            }
            kind => {
                if kind == DisconnectKind::Rst {
                    socket.set_zero_linger()?;
                }
                let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await?;
                let connection = async { connection.await.map_err(anyhow::Error::from) };
                read(sender.send_request(request), connection, received).await
            }
        }
    }
}

/// Reads an answer as it arrives, and drives the connection at the same time.
async fn read(
    response: impl Future<Output = hyper::Result<hyper::Response<Incoming>>>,
    connection: impl Future<Output = Result<()>>,
    received: &mut Option<Response>,
) -> Result<()> {
    let reading = async {
        let response = response.await?;
        let status = response.status().as_u16();
        let received = received.insert(Response {
            status,
            headers: response.headers().clone(),
            text: String::new(),
            cut: None,
        });
        let mut body = response.into_body();
        let mut bytes = Vec::new();
        let mut ended = Ok(());
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes.extend(frame.into_data().unwrap_or_default()),
                Err(error) => ended = Err(error.into()),
            }
            received.text = String::from_utf8_lossy(&bytes).into_owned();
            if ended.is_err() {
                break;
            }
        }
        ended
    };
    let working = async {
        // The answer fails with the same error and reports it.
        let _ended = connection.await;
        pending::<()>().await;
    };
    tokio::select! {
        read = reading => read,
        () = working => Ok(()),
    }
}
