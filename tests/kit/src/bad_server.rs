//! A model server with scripted responses, byte by byte. It records the requests and the clients that
//! disconnect.
//!
//! It writes its bytes itself, because no library responds as badly as a bad server. Each response is chunked
//! and has its own connection, and each piece is one chunk, so the client reads the pieces as they were sent.

use super::{ScriptedAnswer, Wire, eventually, valid_request};
use holdpoint::config::Model;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

/// One action of the server in a response.
#[derive(Debug, Clone)]
pub enum ResponseAction {
    /// Sends a piece of the body.
    Send(Vec<u8>),
    /// Sends nothing until the test adds a permit to `go`.
    Wait,
    /// Sends nothing more.
    Hang,
    /// Sends the same piece this many times, once per interval.
    Every(Duration, usize, &'static str),
    /// Resets the connection.
    Reset,
    /// Closes the connection before the end of the body.
    Cut,
}

/// The response to one request.
#[derive(Debug, Clone)]
pub struct RawResponse {
    /// The response head. Without it the server sends no head at all.
    head: Option<String>,
    acts: Vec<ResponseAction>,
}

impl RawResponse {
    /// The answer, event by event.
    pub fn scripted(answer: &ScriptedAnswer) -> Self {
        Self::streams(answer.wire, answer.pieces().into_iter().map(ResponseAction::Send).collect())
    }

    /// A response with status 200 and the content type of the wire.
    pub fn streams(wire: Wire, acts: Vec<ResponseAction>) -> Self {
        Self::answers(200, wire.content_type(), acts)
    }

    /// These pieces, followed by the end of the body.
    pub fn sends(wire: Wire, pieces: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let pieces = pieces.into_iter().map(|piece| ResponseAction::Send(piece.as_ref().to_vec()));
        Self::streams(wire, pieces.collect())
    }

    /// A refusal with this body.
    pub fn refuses(status: u16, body: &str) -> Self {
        Self::answers(status, "application/json", vec![ResponseAction::Send(body.into())])
    }

    pub fn answers(status: u16, content_type: &str, acts: Vec<ResponseAction>) -> Self {
        let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ntransfer-encoding: chunked\r\n");
        Self { head: Some(head), acts }.with("content-type", content_type)
    }

    /// No byte, only this action.
    pub fn without_a_byte(act: ResponseAction) -> Self {
        Self { head: None, acts: vec![act] }
    }

    /// Adds this header.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        if let Some(head) = &mut self.head {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub path: String,
    pub body: Value,
    pub at: Instant,
    pub state: ResponseState,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseState {
    /// The response is not complete.
    Open,
    /// The whole response was sent.
    Sent,
    /// The whole response was sent, and then the client disconnected.
    Done,
    /// The client disconnected before the whole response was sent.
    Left,
}

#[derive(Debug, Default)]
struct Log {
    replies: VecDeque<RawResponse>,
    requests: Vec<RecordedRequest>,
    /// Invalid requests, and requests that the script did not expect.
    faults: Vec<String>,
}

/// The server. When it is dropped, its script must be used up, and every request must have been one that a
/// provider accepts.
pub struct BadServer {
    wire: Wire,
    base: String,
    log: Arc<Mutex<Log>>,
    /// A waiting response continues once for each permit.
    pub release: Arc<Semaphore>,
    accepts: AbortHandle,
}

impl Drop for BadServer {
    fn drop(&mut self) {
        self.accepts.abort();
        if !std::thread::panicking() {
            let log = self.log.lock().unwrap();
            assert!(log.faults.is_empty(), "{:#?}", log.faults);
            assert!(log.replies.is_empty(), "never asked for: {:?}", log.replies);
        }
    }
}

/// An address that refuses connections until a server is started there.
pub struct ClosedAddress {
    socket: tokio::net::TcpSocket,
    base: String,
}

impl Default for ClosedAddress {
    fn default() -> Self {
        Self::new()
    }
}

impl ClosedAddress {
    pub fn new() -> Self {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let base = format!("http://{}", socket.local_addr().unwrap());
        Self { socket, base }
    }

    /// The `[model]` section for a server at this address.
    pub fn model(&self, wire: Wire, more: &Value) -> Model {
        model(&self.base, wire, more)
    }

    pub fn opens(self, wire: Wire) -> BadServer {
        BadServer::accepts(wire, self.socket.listen(64).unwrap())
    }
}

/// The `[model]` section for a server at this base URL, with these additional keys.
fn model(base: &str, wire: Wire, more: &Value) -> Model {
    let base_url = format!("{base}{}", wire.facts().base_path);
    let mut keys =
        json!({ "provider": wire.facts().provider, "name": "m-1", "base_url": base_url, "api_key": KEY });
    let more = more.as_object().unwrap().clone();
    keys.as_object_mut().unwrap().extend(more);
    serde_json::from_value(keys).unwrap()
}

/// The API key; only the model server may ever receive it.
pub const KEY: &str = "sk-never-tell";

impl BadServer {
    pub async fn start(wire: Wire) -> Self {
        Self::accepts(wire, TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn accepts(wire: Wire, listener: TcpListener) -> Self {
        let base = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Log::default()));
        let release = Arc::new(Semaphore::new(0));
        let connection = Connection { log: log.clone(), release: release.clone() };
        #[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
        let accepts = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(connection.clone().serve(socket));
            }
        });
        Self { wire, base, log, release, accepts: accepts.abort_handle() }
    }

    /// The `[model]` section for this server, with these additional keys.
    pub fn model(&self, more: &Value) -> Model {
        model(&self.base, self.wire, more)
    }

    /// Appends this reply to the script.
    pub fn then(&self, reply: RawResponse) -> &Self {
        self.log.lock().unwrap().replies.push_back(reply);
        self
    }

    /// Appends this answer to the script.
    pub fn answers(&self, answer: &ScriptedAnswer) -> &Self {
        self.then(RawResponse::scripted(answer))
    }

    /// Appends an answer with this text to the script.
    pub fn words(&self, words: &str) -> &Self {
        self.answers(&ScriptedAnswer::words_on(self.wire, words))
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.log.lock().unwrap().requests.clone()
    }

    /// The body of the last request.
    pub fn last(&self) -> Value {
        self.requests().pop().unwrap().body
    }

    /// Waits until this number of requests has arrived.
    pub async fn wait_for_requests(&self, times: usize) {
        let enough = async || (self.requests().len() >= times).then_some(());
        eventually(&format!("request {times} comes"), enough).await;
    }

    /// Waits until the last request has this state.
    pub async fn wait_for_state(&self, state: ResponseState) {
        let there =
            async || self.requests().last().is_some_and(|requests| requests.state == state).then_some(());
        eventually(&format!("the last request is {state:?}"), there).await;
    }
}

#[derive(Clone)]
struct Connection {
    log: Arc<Mutex<Log>>,
    release: Arc<Semaphore>,
}

impl Connection {
    async fn serve(self, mut socket: TcpStream) {
        socket.set_nodelay(true).unwrap();
        let Some((head, body)) = read_request(&mut socket).await else { return };
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let (number, reply) = {
            let mut log = self.log.lock().unwrap();
            if let Err(fault) = valid_request(&path, &body) {
                log.faults.push(format!("{fault}: {body}"));
            }
            let reply = log.replies.pop_front().unwrap_or_else(|| {
                log.faults.push(format!("asked once too often: {body}"));
                RawResponse::refuses(400, "{}")
            });
            log.requests.push(RecordedRequest { path, body, at: Instant::now(), state: ResponseState::Open });
            (log.requests.len() - 1, reply)
        };
        let state = |now: ResponseState| self.log.lock().unwrap().requests[number].state = now;
        let (mut read, mut write) = socket.into_split();
        let played = tokio::select! {
            played = self.play(&mut write, reply) => played,
            () = gone(&mut read) => return state(ResponseState::Left),
        };
        state(ResponseState::Sent);
        match played {
            Ok(ConnectionEnd::Close) => drop(write),
            // Dropping one half would close the connection cleanly.
            Ok(ConnectionEnd::Vanish) => return write.forget(),
            Err(_) => return state(ResponseState::Left),
        }
        gone(&mut read).await;
        state(ResponseState::Done);
    }

    async fn play(&self, write: &mut OwnedWriteHalf, reply: RawResponse) -> std::io::Result<ConnectionEnd> {
        if let Some(head) = reply.head {
            write.write_all(format!("{head}\r\n").as_bytes()).await?;
        }
        for act in reply.acts {
            match act {
                ResponseAction::Send(piece) => chunk(write, &piece).await?,
                ResponseAction::Wait => self.release.acquire().await.unwrap().forget(),
                ResponseAction::Hang => std::future::pending().await,
                ResponseAction::Every(pause, times, piece) => {
                    let mut ticks = tokio::time::interval(pause);
                    for _ in 0..times {
                        ticks.tick().await;
                        chunk(write, piece.as_bytes()).await?;
                    }
                }
                ResponseAction::Reset => {
                    return write.as_ref().set_zero_linger().map(|()| ConnectionEnd::Vanish);
                }
                ResponseAction::Cut => return Ok(ConnectionEnd::Close),
            }
        }
        write.write_all(b"0\r\n\r\n").await.map(|()| ConnectionEnd::Close)
    }
}

/// The end of a connection after its response.
enum ConnectionEnd {
    Close,
    Vanish,
}

async fn chunk(write: &mut OwnedWriteHalf, piece: &[u8]) -> std::io::Result<()> {
    // An empty chunk would end the body.
    if piece.is_empty() {
        return Ok(());
    }
    let head = format!("{:x}\r\n", piece.len());
    write.write_all(&[head.as_bytes(), piece, b"\r\n"].concat()).await
}

/// Reads until the client has disconnected.
async fn gone(read: &mut OwnedReadHalf) {
    while read.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
}

/// The head and the body of a request, or `None` if the client disconnects before the end.
async fn read_request(socket: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        if let Some(at) = head {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            let end = at + length.expect("a content length").parse::<usize>().unwrap();
            if bytes.len() >= end {
                return Some((head, serde_json::from_slice(&bytes[at..end]).unwrap()));
            }
        }
        if !socket.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
            return None;
        }
    }
}
