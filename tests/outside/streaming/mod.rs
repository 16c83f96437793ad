//! Streams in every dialect: their heads, sources and files from the model, and keep-alives.

mod heads;
mod keep_alive;
mod proxies;
mod sources;

use holdpoint_testkit::{Client, Embedded, JsonFields};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// The maximum time that a server may stay silent when it has data to send.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request for a turn of this thread in this dialect.
fn asks(client: &Client, thread: &str, dialect: &str) -> RequestBuilder {
    let request = client.http.post(client.url(&format!("/qa/chat_streamed/{thread}")));
    request.header("x-stream-protocol", dialect).json(&json!({ "content": "hi" }))
}

/// A stream and the bytes read from it.
struct ReceivedStream {
    response: reqwest::Response,
    raw: String,
}

impl ReceivedStream {
    async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self { response, raw: String::new() }
    }

    /// Reads a chunk. Returns false at the end.
    async fn reads(&mut self) -> bool {
        let piece = timeout(PATIENCE, self.response.chunk()).await.expect("the stream continues, or ends");
        let piece = piece.unwrap();
        self.raw.push_str(std::str::from_utf8(piece.as_deref().unwrap_or_default()).unwrap());
        piece.is_some()
    }

    /// Reads until these words have arrived this often.
    async fn until(&mut self, words: &str, times: usize) {
        while self.raw.matches(words).count() < times {
            assert!(self.reads().await, "{words:?}: {}", self.raw);
        }
    }

    /// Reads to the end.
    async fn all(mut self) -> String {
        while self.reads().await {}
        self.raw
    }
}

/// The chunks of a UI message stream.
fn chunks(raw: &str) -> Vec<Value> {
    let data = raw.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The messages of a thread in this format.
async fn reloaded(app: &Embedded, thread: &str, format: &str) -> Vec<Value> {
    let found = app.client.get(&format!("/threads/{thread}/messages?format={format}")).await;
    found.has_status(200);
    found.body.list("results").clone()
}
