//! The service of an HTTP tool, which answers as a test says.
//!
//! It writes its bytes itself, because no library answers as badly as a bad service. Each answer has its own
//! connection.

use super::eventually;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// What the service does with one request.
#[derive(Debug, Clone)]
pub enum ServiceAction {
    /// Answers with this status and this body.
    Answers(u16, String),
    /// Answers with 200 and this body, and again on the same connection.
    AnswersTwice(String),
    /// Answers with this status, and asks for another request after this number of seconds.
    Busy(u16, u32),
    /// Answers with a redirect to this URL.
    Redirects(String),
    /// Never answers.
    Hangs,
    /// Resets the connection.
    Resets,
    /// Answers with this status and this body once the test lets it.
    Waits(u16, String),
    /// Closes the connection in the middle of an answer with 200.
    BreaksOff,
    /// Closes the connection in the middle of an answer with 202.
    AcceptsAndBreaksOff,
    /// Answers with this status and a body without an end.
    Floods(u16),
}

impl ServiceAction {
    pub fn answers(status: u16, body: &str) -> Self {
        Self::Answers(status, body.to_owned())
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
    /// Whether the client closed the connection before the end of the answer.
    pub left: bool,
}

impl ReceivedRequest {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", self.headers))
    }
}

#[derive(Debug)]
struct Script {
    /// The answers to the next requests.
    next: VecDeque<ServiceAction>,
    /// The answer to each request after them.
    then: ServiceAction,
    received: Vec<ReceivedRequest>,
}

/// The service.
#[derive(Debug, Clone)]
pub struct RemoteTool {
    pub base: String,
    script: Arc<Mutex<Script>>,
    /// One permit for each answer that waits.
    release: Arc<Semaphore>,
}

impl RemoteTool {
    /// Starts a service that does this with each request.
    pub async fn start(then: ServiceAction) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let script = Script { next: VecDeque::new(), then, received: Vec::new() };
        let service =
            Self { base, script: Arc::new(Mutex::new(script)), release: Arc::new(Semaphore::new(0)) };
        let serving = service.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let service = serving.clone();
                tokio::spawn(async move { service.serve(socket).await });
            }
        });
        service
    }

    /// Does this with the next requests, one each.
    pub fn next(&self, does: impl IntoIterator<Item = ServiceAction>) {
        self.script.lock().unwrap().next.extend(does);
    }

    /// Does this with each later request.
    pub fn now(&self, then: ServiceAction) {
        self.script.lock().unwrap().then = then;
    }

    /// Lets one answer that waits go.
    pub fn release(&self) {
        self.release.add_permits(1);
    }

    /// All requests so far, oldest first.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.script.lock().unwrap().received.clone()
    }

    /// The requests for this path.
    pub fn received_at(&self, path: &str) -> Vec<ReceivedRequest> {
        self.received().into_iter().filter(|it| it.path == path).collect()
    }

    /// Waits until this many requests have arrived, and returns them.
    pub async fn wait_received(&self, count: usize) -> Vec<ReceivedRequest> {
        let received = async || Some(self.received()).filter(|all| all.len() >= count);
        eventually(&format!("{count} requests have arrived"), received).await
    }

    /// Waits until the client has left the last request.
    pub async fn wait_left(&self) {
        let left = async || self.received().last().is_some_and(|last| last.left).then_some(());
        eventually("the client has closed the connection", left).await;
    }

    async fn serve(&self, mut socket: TcpStream) {
        let Some(received) = read(&mut socket).await else { return };
        let (place, does) = {
            let mut script = self.script.lock().unwrap();
            script.received.push(received);
            let does = script.next.pop_front().unwrap_or_else(|| script.then.clone());
            (script.received.len() - 1, does)
        };
        let answer = |status: u16, body: &str| {
            let length = body.len();
            format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )
        };
        // A client that has left reads no answer.
        let _written = match does {
            ServiceAction::Answers(status, body) => socket.write_all(answer(status, &body).as_bytes()).await,
            ServiceAction::Waits(status, body) => {
                self.release.acquire().await.unwrap().forget();
                socket.write_all(answer(status, &body).as_bytes()).await
            }
            ServiceAction::AnswersTwice(body) => {
                socket.write_all([answer(200, &body), answer(200, "\"again\"")].concat().as_bytes()).await
            }
            ServiceAction::Busy(status, seconds) => {
                let head =
                    format!("HTTP/1.1 {status} X\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n");
                socket.write_all(head.as_bytes()).await
            }
            ServiceAction::Redirects(url) => {
                let head = format!("HTTP/1.1 307 X\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n");
                socket.write_all(head.as_bytes()).await
            }
            ServiceAction::Resets => {
                socket.set_zero_linger().unwrap();
                return;
            }
            ServiceAction::BreaksOff => {
                socket.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\n{\"half\":").await
            }
            ServiceAction::AcceptsAndBreaksOff => {
                socket.write_all(b"HTTP/1.1 202 X\r\ncontent-length: 100\r\n\r\n{\"half\":").await
            }
            ServiceAction::Hangs => {
                while socket.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                self.script.lock().unwrap().received[place].left = true;
                return;
            }
            ServiceAction::Floods(status) => {
                let head = format!("HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n\r\n");
                let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
                let mut written = socket.write_all(head.as_bytes()).await;
                while written.is_ok() {
                    written = socket.write_all(chunk.as_bytes()).await;
                }
                self.script.lock().unwrap().received[place].left = true;
                return;
            }
        };
        // The client reads the answer before the connection is closed.
        let _closed = socket.shutdown().await;
        let gone = async { while socket.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {} };
        let _gone = tokio::time::timeout(Duration::from_secs(30), gone).await;
    }
}

/// Reads a request, or returns `None` if the client leaves before its end.
pub async fn read(socket: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
            let mut lines = head.lines();
            let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
            let headers: BTreeMap<String, String> = lines
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let end = at + 4 + headers["content-length"].parse::<usize>().unwrap();
            if bytes.len() >= end {
                let body = String::from_utf8(bytes[at + 4..end].to_vec()).unwrap();
                return Some(ReceivedRequest { path, headers, body, left: false });
            }
        }
        if !socket.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
            return None;
        }
    }
}
