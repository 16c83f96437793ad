//! A server on a port of its own, and its clients.

use bytes::Bytes;
use futures::stream;
use h2::client::{Connection, ResponseFuture, SendRequest};
use holdpoint_serve::{
    Admission, BodyError, Budget, Deadlines, Limits, OpenConnections, Server, drain_body, read_body,
};
use parking_lot::Mutex;
use poem::http::{StatusCode, header};
use poem::{Body, Endpoint, IntoResponse, Request, Response, Result};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// The longest time that a test waits for the server to answer, to close or to do something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A short deadline that a well-behaved client still meets on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(1);
/// The interval between the bytes of a slow client.
pub(crate) const PACE: Duration = Duration::from_millis(20);
/// The longest body that `/read` accepts, and the sum for `/keep`, in bytes.
pub(crate) const BODY_BYTES: usize = 1000;
/// The length of the response of `/long`: more than all buffers between the endpoint and the client.
pub(crate) const LONG_BYTES: usize = 64 << 20;

/// A count that a test can wait for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Count(watch::Sender<usize>);

impl Count {
    fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    pub(crate) fn now(&self) -> usize {
        *self.0.borrow()
    }

    pub(crate) async fn reaches(&self, wanted: usize) {
        let mut count = self.0.subscribe();
        let reached = timeout(PATIENCE, count.wait_for(|count| *count >= wanted)).await;
        reached.unwrap_or_else(|_| panic!("{} of {wanted}", self.now())).unwrap();
    }
}

/// Counts its drop.
struct Guard(Count);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// The endpoint of the tests.
#[derive(Debug, Clone)]
pub(crate) struct App {
    /// A permit lets one waiting response continue.
    pub(crate) gate: Arc<Semaphore>,
    /// The requests that wait at the gate.
    pub(crate) waiting: Count,
    /// The futures and bodies of `/wait` and `/long` that were dropped.
    pub(crate) dropped: Count,
    /// The addresses of refused connections.
    pub(crate) refused: Arc<Mutex<Vec<IpAddr>>>,
    pub(crate) refusals: Count,
    deadlines: Deadlines,
    budget: Arc<Budget>,
    tasks: TaskTracker,
}

impl App {
    fn new(deadlines: Deadlines) -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
            waiting: Count::default(),
            dropped: Count::default(),
            refused: Arc::default(),
            refusals: Count::default(),
            deadlines,
            budget: Arc::new(Budget::new(BODY_BYTES)),
            tasks: TaskTracker::new(),
        }
    }

    async fn waits(&self) {
        self.waiting.add();
        self.gate.acquire().await.unwrap().forget();
    }

    async fn reads(&self, request: &mut Request, max: usize) -> Result<Bytes, BodyError> {
        read_body(request, max, &self.deadlines, self.budget.part()).await
    }
}

impl Endpoint for App {
    type Output = Response;

    async fn call(&self, mut request: Request) -> Result<Response> {
        Ok(match request.uri().path() {
            "/" => "ok".into_response(),
            "/peer" => request.remote_addr().to_string().into_response(),
            // The response comes after a permit.
            "/wait" => {
                let _guard = Guard(self.dropped.clone());
                self.waits().await;
                "done".into_response()
            }
            // The response ends after a permit.
            "/silent" => {
                let app = self.clone();
                let pieces = stream::unfold(0, move |piece| {
                    let app = app.clone();
                    async move {
                        match piece {
                            0 => Some((Ok::<_, io::Error>("first "), 1)),
                            1 => {
                                app.waits().await;
                                Some((Ok("last"), 2))
                            }
                            _ => None,
                        }
                    }
                });
                Body::from_bytes_stream(pieces).into_response()
            }
            "/long" => {
                let start = (LONG_BYTES, Guard(self.dropped.clone()));
                let pieces = stream::unfold(start, async |(left, guard)| {
                    let piece = Bytes::from_static(&[b'x'; 64 << 10]);
                    let left = left.checked_sub(piece.len())?;
                    Some((Ok::<_, io::Error>(piece), (left, guard)))
                });
                Body::from_bytes_stream(pieces).into_response()
            }
            "/read" | "/keep" => {
                let keeps = request.uri().path() == "/keep";
                match self.reads(&mut request, BODY_BYTES).await {
                    Ok(body) => {
                        if keeps {
                            self.waits().await;
                        }
                        body.len().to_string().into_response()
                    }
                    Err(refused) => {
                        self.tasks.spawn(drain_body(request));
                        (StatusCode::BAD_REQUEST, refused.to_string()).into_response()
                    }
                }
            }
            // The upgraded connection repeats what it receives.
            "/upgrade" => {
                let admission = request.data::<Arc<Admission>>().cloned();
                let upgrade = request.take_upgrade().unwrap();
                self.tasks.spawn(async move {
                    let (mut from, mut to) = split(upgrade.await.unwrap());
                    let _copied = copy(&mut from, &mut to).await;
                    drop(admission);
                });
                let head = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
                head.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "echo").finish()
            }
            path => panic!("{path}"),
        })
    }
}

/// A server and its endpoint.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) app: App,
    /// Completes `stop`.
    stop: Option<oneshot::Sender<()>>,
    served: JoinSet<io::Result<()>>,
}

impl Running {
    pub(crate) async fn start(limits: Limits, change: impl FnOnce(&mut Deadlines)) -> Self {
        Self::with_drain(limits, change, async |open: OpenConnections| open.closed().await).await
    }

    /// A server with these deadlines and no limits.
    pub(crate) async fn hurried(change: impl FnOnce(&mut Deadlines)) -> Self {
        Self::start(Limits::default(), change).await
    }

    pub(crate) async fn with_drain<D: Future<Output = ()> + Send + 'static>(
        limits: Limits,
        change: impl FnOnce(&mut Deadlines),
        drain: impl FnOnce(OpenConnections) -> D + Send + 'static,
    ) -> Self {
        let mut deadlines = Deadlines::default();
        change(&mut deadlines);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = App::new(deadlines);
        let (refused, refusals) = (app.refused.clone(), app.refusals.clone());
        let server = Server::new(app.clone()).limits(limits).deadlines(deadlines).on_refused(move |ip| {
            refused.lock().push(ip);
            refusals.add();
        });
        let (stop, stopped) = oneshot::channel();
        let stopped = async move {
            let _dropped = stopped.await;
        };
        let mut served = JoinSet::new();
        served.spawn(server.serve(listener, stopped, drain));
        Self { address, app, stop: Some(stop), served }
    }

    /// Lets the server stop.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has ended.
    pub(crate) async fn ended(&mut self) {
        let ended = timeout(PATIENCE, self.served.join_next()).await.expect("the server ends");
        ended.unwrap().unwrap().unwrap();
    }

    /// Whether the server has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.served.try_join_next().is_some()
    }
}

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
    pub(crate) async fn ask(&mut self, first: &str, lines: &[&str]) {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(format!("{first} HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n")).await;
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.ask(&format!("GET {path}"), &[]).await;
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
    pub(crate) async fn send_and_hear(self, bytes: &[u8]) -> Vec<u8> {
        self.hear_while(async |mut to| {
            // The server may close before it has read everything.
            let _written = to.write_all(bytes).await;
            to
        })
        .await
    }

    /// Sends these bytes one by one until the server closes the connection. Returns all received bytes.
    pub(crate) async fn drip(self, bytes: impl Iterator<Item = u8>) -> Vec<u8> {
        self.hear_while(async |mut to| {
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
    async fn hear_while(self, writing: impl AsyncFnOnce(OwnedWriteHalf) -> OwnedWriteHalf) -> Vec<u8> {
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

/// A client over HTTP/2, with its connection in a task.
pub(crate) struct Http2 {
    pub(crate) client: SendRequest<Bytes>,
    pub(crate) connection: JoinSet<Result<(), h2::Error>>,
}

/// An HTTP/2 connection that does nothing unless it is polled.
pub(crate) type Unpolled = (SendRequest<Bytes>, Connection<TcpStream, Bytes>);

pub(crate) async fn handshake(server: &Running, builder: &h2::client::Builder) -> Unpolled {
    let socket = TcpStream::connect(server.address).await.unwrap();
    builder.handshake(socket).await.unwrap()
}

/// A GET request.
pub(crate) fn request(path: &str) -> poem::http::Request<()> {
    poem::http::Request::get(format!("http://localhost{path}")).body(()).unwrap()
}

impl Http2 {
    pub(crate) async fn connect(server: &Running) -> Self {
        Self::with(server, &h2::client::Builder::new()).await
    }

    pub(crate) async fn with(server: &Running, builder: &h2::client::Builder) -> Self {
        let (client, connection) = handshake(server, builder).await;
        let mut polled = JoinSet::new();
        polled.spawn(connection);
        Self { client, connection: polled }
    }

    /// Sends a request without a body.
    pub(crate) async fn ask(&mut self, path: &str) -> ResponseFuture {
        let ready = timeout(PATIENCE, self.client.clone().ready()).await.expect("a stream is free");
        ready.unwrap().send_request(request(path), true).unwrap().0
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<(u16, String), h2::Error> {
        let response = self.ask(path).await;
        body_of(response).await
    }

    /// Waits until the server has closed the connection. Returns its error, if it was not graceful.
    pub(crate) async fn closed(&mut self) -> Result<(), h2::Error> {
        let closed = timeout(PATIENCE, self.connection.join_next()).await;
        closed.expect("the server closes the connection").unwrap().unwrap()
    }
}

/// The status and the whole body of a response.
pub(crate) async fn body_of(response: ResponseFuture) -> Result<(u16, String), h2::Error> {
    let reading = async {
        let (head, mut body) = response.await?.into_parts();
        let mut read = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece?;
            body.flow_control().release_capacity(piece.len())?;
            read.extend_from_slice(&piece);
        }
        Ok((head.status.as_u16(), String::from_utf8(read).unwrap()))
    };
    timeout(PATIENCE, reading).await.expect("a response, or its end")
}

/// Waits until the server takes no more connections.
pub(crate) async fn takes_no_connection(server: &Running) {
    let refused = async { while TcpStream::connect(server.address).await.is_ok() {} };
    timeout(PATIENCE, refused).await.expect("the listener closes");
}

pub(crate) fn at_most(connections: u32) -> Limits {
    Limits { connections: connections.try_into().ok(), ..Limits::default() }
}

pub(crate) fn at_most_per_ip(connections: u32) -> Limits {
    Limits { connections_per_ip: connections.try_into().ok(), ..Limits::default() }
}
