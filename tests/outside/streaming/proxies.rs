//! Streams through proxies that compress: each piece arrives before the next one exists.

use super::PATIENCE;
use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::{Embedded, JsonFields, Next, Nginx};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

/// A server of Express, and a page that reads through any proxy.
struct Proxies {
    child: Child,
    stdin: ChildStdin,
    lines: UnboundedReceiver<Value>,
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Proxies {
    fn before(server: &str) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
        let there = dir.join("node_modules/http-proxy").exists();
        assert!(there, "run `npm ci --ignore-scripts` in {}", dir.display());
        let mut node = Command::new("node");
        node.current_dir(dir).args(["driver/proxies.mjs", server]);
        let child = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("node is installed");
        let printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sends, lines) = unbounded_channel();
        std::thread::spawn(move || {
            for line in printed.map_while(Result::ok) {
                drop(sends.send(serde_json::from_str(&line).unwrap()));
            }
        });
        let stdin = child.stdin.take().unwrap();
        Self { child, stdin, lines }
    }

    async fn line(&mut self) -> Value {
        let line =
            timeout(PATIENCE, self.lines.recv()).await.expect("a piece arrives before the next exists");
        line.expect("the proxies run")
    }

    fn asks(&mut self, request: &Value) {
        writeln!(self.stdin, "{request}").unwrap();
    }

    /// Reads pieces until these words have arrived, and returns them.
    async fn until(&mut self, words: &str) -> String {
        let mut text = String::new();
        while !text.contains(words) {
            let line = self.line().await;
            text.push_str(line["text"].as_str().unwrap_or_else(|| panic!("{words:?} of {text:?}: {line}")));
        }
        text
    }

    /// Reads to the end, and returns the head of the answer.
    async fn end(&mut self) -> Value {
        loop {
            if let Value::Object(end) = self.line().await["end"].take() {
                return Value::Object(end);
            }
        }
    }
}

#[tokio::test]
async fn every_piece_of_a_stream_passes_proxies_that_compress_before_the_next_one_exists() {
    let app = Embedded::with(|config| config.stream.keep_alive = Duration::ZERO).await;
    let nginx = Nginx::before(&app.client.base).await;
    let mut proxies = Proxies::before(&app.client.base);
    let express = proxies.line().await.text("express").to_owned();
    let next = Next::before(&app.client.base);
    let gate = app.scene.gate();
    let text = |words: &str| Ok(ModelEvent::Text(words.to_owned()));
    let end = ModelEvent::Finished { reason: FinishReason::Stop, usage: None, provider_state: None };
    for (proxy, url, encoding) in [
        ("express", express, Value::Null),
        ("next", format!("{}/api", next.url()), Value::Null),
        // It compresses each piece by itself.
        ("nginx", nginx.url(), json!("gzip")),
    ] {
        for dialect in ["data-v1", "ui-v5", "ui-v7"] {
            println!("{dialect} through {proxy}");
            let thread = app.client.thread().await;
            app.scene.then(vec![text("One, "), text("two, "), text("three."), Ok(end.clone())]);
            proxies.asks(&json!({
                "url": format!("{url}/qa/chat_streamed/{thread}"), "method": "POST",
                "headers": { "x-stream-protocol": dialect }, "body": { "content": "hi" },
            }));
            for (words, later) in [("One, ", "two"), ("two, ", "three"), ("three.", "finish")] {
                gate.add_permits(1);
                let piece = proxies.until(words).await;
                assert!(!piece.contains(later), "{piece}");
            }
            gate.add_permits(1);
            let head = proxies.end().await;
            let expected = json!({ "status": 200, "encoding": encoding, "cached": "no-store, no-transform" });
            assert_eq!(head, expected, "{dialect} through {proxy}");
        }
        // Events.
        let thread = app.client.thread().await;
        app.scene.then(vec![text("One."), Ok(end.clone())]);
        gate.add_permits(1);
        let run = app.client.begin(&thread, &json!({ "content": "hi" })).await;
        let events = format!("{url}/events/stream?thread_id={thread}&after=0");
        proxies.asks(&json!({ "url": events, "method": "GET", "until": "run.completed" }));
        let piece = proxies.until("run.started").await;
        assert!(!piece.contains("run.completed"), "{piece}");
        gate.add_permits(1);
        proxies.until("run.completed").await;
        run.text().await.unwrap();
        assert_eq!(proxies.end().await["encoding"], encoding, "events through {proxy}");
    }
}
