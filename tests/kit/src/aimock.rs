//! A third-party model server: npm's `@copilotkit/aimock`, with the fixtures of `tests/wire`.

use super::{Client, RecordedRequest, Upstream};
use crate::in_repository;
use futures::FutureExt;
use poem::http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER};
use poem::{Body, Response};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A running aimock, reached through an [`Upstream`] that records the requests: aimock's own journal has them
/// only in its own format. Dropping it kills the process.
pub struct Aimock {
    front: Option<Upstream>,
    child: Child,
}

impl Aimock {
    pub async fn start() -> Self {
        let dir = in_repository("tests/wire");
        let program = "node_modules/@copilotkit/aimock/dist/cli.js";
        assert!(dir.join(program).exists(), "run `npm ci --ignore-scripts` in {}", dir.display());
        let mut child = Command::new("node")
            .current_dir(dir)
            .args([program, "-p", "0", "-h", "127.0.0.1", "-f", "fixtures/holdpoint.json"])
            // Chunks of 8 characters, 5 ms apart; a request that matches no fixture is an error.
            .args(["-c", "8", "-l", "5", "--strict"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("node is installed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.split_once("server listening on ").map(|(_, it)| it.trim().to_owned()))
            .expect("aimock prints its address");
        std::thread::spawn(move || lines.for_each(drop));
        let upstream = Client::new(address);
        let front = Upstream::start(move |request| forward(upstream.clone(), request).boxed()).await;
        Self { front: Some(front), child }
    }

    /// The `model.base_url` of this server, with the path of the wire.
    pub fn base_url(&self, path: &str) -> String {
        format!("{}{path}", self.front.as_ref().unwrap().base)
    }

    /// Returns every request. Each was valid, and only those at these indices were answered with an error.
    pub fn finish(mut self, refused: &[(usize, u16)]) -> Vec<RecordedRequest> {
        self.front.take().unwrap().finish(refused)
    }
}

impl Drop for Aimock {
    fn drop(&mut self) {
        // The process may have ended already.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

/// Forwards a request; the response is streamed chunk by chunk.
async fn forward(upstream: Client, request: RecordedRequest) -> Response {
    let RecordedRequest { path, mut headers, raw, .. } = request;
    headers.remove(HOST);
    headers.remove(CONTENT_LENGTH);
    let request = upstream.http.post(upstream.url(&path)).headers(headers).body(raw);
    let answer = request.send().await.unwrap();
    let mut response = Response::builder().status(answer.status());
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = answer.headers().get(&name) {
            response = response.header(name, value);
        }
    }
    let pieces = futures::TryStreamExt::map_err(answer.bytes_stream(), std::io::Error::other);
    response.body(Body::from_bytes_stream(pieces))
}
