//! A page on the development servers of Vite and Next.js, configured as docs/pages.md says: they forward requests, streams as
//! they arrive, and WebSockets. `streaming::proxies` has the streams through Next.js.

use holdpoint::llm::{FinishReason, ModelEvent};
use holdpoint_testkit::{Client, Embedded, JsonFields, Next, Socket, in_repository};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

/// The maximum time in which bytes that the server has sent have to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// The configuration in docs/pages.md.
fn documented() -> &'static str {
    let page = include_str!("../../../docs/pages.md");
    let (_, block) = page.split_once("```js\n// vite.config.js\n").unwrap();
    block.split_once("```").unwrap().0
}

/// A development server, which ends with this value.
struct Vite {
    child: Child,
    /// A client of the origin of the page.
    client: Client,
    _project: TempDir,
}

impl Drop for Vite {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Vite {
    /// Starts Vite in a project with this configuration. Its page is on this server.
    fn start(server: &str, config: &str) -> Self {
        assert!(config.contains("http://127.0.0.1:8080"), "{config}");
        let installed = in_repository("examples/page/node_modules/vite");
        assert!(installed.exists(), "run `npm ci --ignore-scripts` in examples/page");
        let project = tempfile::tempdir().unwrap();
        fs::create_dir(project.path().join("node_modules")).unwrap();
        symlink(&installed, project.path().join("node_modules/vite")).unwrap();
        fs::write(project.path().join("package.json"), r#"{"type": "module"}"#).unwrap();
        fs::write(project.path().join("index.html"), "<p>The page").unwrap();
        let config = config.replace("http://127.0.0.1:8080", server);
        fs::write(project.path().join("vite.config.js"), config).unwrap();

        let mut command = Command::new("node");
        command.arg(installed.join("bin/vite.js")).args(["--host", "127.0.0.1", "--port", "0"]);
        command.current_dir(project.path()).env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("node is installed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let address =
            lines.find_map(|line| Some(line.split_once("http://")?.1.trim_end_matches('/').to_owned()));
        std::thread::spawn(move || lines.for_each(drop));
        let client = Client::new(format!("http://{}", address.expect("Vite prints its address")));
        Self { child, client, _project: project }
    }
}

#[tokio::test]
async fn the_documented_vite_proxy_forwards_streams_as_they_arrive() {
    let app = Embedded::with(|config| config.stream.keep_alive = Duration::ZERO).await;
    let vite = Vite::start(&app.client.base, documented());
    let own = vite.client.http.get(vite.client.url("/")).send().await.unwrap().text().await.unwrap();
    assert!(own.contains("The page"), "{own}");
    let made = vite.client.post("/api/threads", &json!({})).await;
    made.has_status(201);
    let thread = made.body.text("thread_id").to_owned();

    let events = format!("/api/events/stream?thread_id={thread}");
    let opened = vite.client.http.get(vite.client.url(&events)).send();
    let mut events = timeout(PATIENCE, opened).await.expect("a silent stream opens at once").unwrap();

    let gate = app.scene.gate();
    let text = |words: &str| Ok(ModelEvent::Text(words.to_owned()));
    let end = ModelEvent::Finished { reason: FinishReason::Stop, usage: None, provider_state: None };
    app.scene.then(vec![text("Half "), text("of it."), Ok(end)]);
    let path = format!("/api/qa/chat_streamed/{thread}");
    let requested = vite.client.http.post(vite.client.url(&path)).header("accept-encoding", "gzip, br");
    let mut answer = requested.json(&json!({ "content": "hi" })).send().await.unwrap();
    let mut received = String::new();
    gate.add_permits(1);
    while !received.contains("Half ") {
        let piece =
            timeout(PATIENCE, answer.chunk()).await.expect("the first words arrive before the rest exists");
        received.push_str(std::str::from_utf8(&piece.unwrap().expect("the answer has an end")).unwrap());
    }
    assert!(!received.contains("of it."), "{received}");
    gate.add_permits(2);
    received.push_str(&answer.text().await.unwrap());
    assert!(received.contains("of it."), "{received}");

    let mut reported = String::new();
    while !reported.contains("event: run.completed\n") {
        let piece = timeout(PATIENCE, events.chunk()).await.expect("events arrive").unwrap();
        reported.push_str(std::str::from_utf8(&piece.expect("the stream has no end")).unwrap());
    }
}

#[tokio::test]
async fn the_documented_vite_proxy_forwards_websockets() {
    let app = Embedded::start().await;
    let vite = Vite::start(&app.client.base, documented());
    a_call_is_rejected_over_a_websocket(&app, &vite.client).await;
}

#[tokio::test]
async fn the_documented_next_rewrite_forwards_requests_and_websockets() {
    let app = Embedded::start().await;
    let next = Next::before(&app.client.base);
    let page = Client::new(next.url().to_owned());
    let made = page.post("/api/threads", &json!({})).await;
    made.has_status(201);
    a_call_is_rejected_over_a_websocket(&app, &page).await;
}

/// `page` is a client of the origin of the page.
async fn a_call_is_rejected_over_a_websocket(app: &Embedded, page: &Client) {
    let mut socket = Socket::open(page, "/api/ws", &[]).await.unwrap();
    let (_, id) = app.held("pay", "10").await;
    let (status, body) = socket.ask(&json!(1), &json!({ "tool_call_id": id, "decision": "reject" })).await;
    assert_eq!((status, &body["state"]), (200, &json!("rejected")));
}
