//! A reader of Server-Sent Events (HTML, 9.2), with the state of a browser.

use super::Client;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// The time within which a server has to send data.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream of events.
pub struct Sse {
    response: reqwest::Response,
    raw: String,
    /// The id that a browser would send after a disconnect.
    pub last_event_id: Option<String>,
}

impl Sse {
    /// Reads from this path, after this event.
    pub async fn behind(client: &Client, path: &str, last: Option<&str>) -> Self {
        let mut request = client.http.get(client.url(path)).header("accept", "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self { response, raw: String::new(), last_event_id: last.map(str::to_owned) }
    }

    pub async fn open(client: &Client, path: &str) -> Self {
        Self::behind(client, path, None).await
    }

    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some((frame, rest)) = self.raw.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.raw = rest;
                if frame.starts_with(": ") {
                    continue;
                }
                let mut fields = frame.splitn(3, '\n');
                let mut field = |name: &str| {
                    let line = fields.next().and_then(|line| line.strip_prefix(name));
                    line.unwrap_or_else(|| panic!("{frame}")).to_owned()
                };
                let (id, kind, data) = (field("id: "), field("event: "), field("data: "));
                let event: Value = serde_json::from_str(&data).unwrap();
                assert_eq!((event["seq"].to_string(), event["type"].as_str()), (id.clone(), Some(&*kind)));
                self.last_event_id = Some(id);
                return Some(event);
            }
            let piece = timeout(PATIENCE, self.response.chunk()).await.expect("the stream goes on, or ends");
            self.raw.push_str(std::str::from_utf8(&piece.ok()??).unwrap());
        }
    }

    /// The next events, this number of them.
    pub async fn take(&mut self, many: usize) -> Vec<Value> {
        let mut all = Vec::new();
        while all.len() < many {
            all.push(self.next().await.expect("the stream goes on"));
        }
        all
    }

    /// The events up to the first of this type.
    pub async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        while all.last().is_none_or(|event| event["type"] != kind) {
            all.push(self.next().await.unwrap_or_else(|| panic!("{kind} does not come: {all:#?}")));
        }
        all
    }
}
