//! The example page in a real Chromium, driven by a process of Node (`tests/browser`).

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

const MISSING: &str = "run `npm ci --ignore-scripts` in tests/browser and in examples/page, and install Debian's \
                       package chromium; what went wrong stands above";

/// A browser with nothing open. It has to be closed; where a test fails before, what its tabs show is put into
/// `target/tmp/browser`.
pub(crate) struct Browser {
    node: Arc<Mutex<Node>>,
}

struct Node {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

/// A tab of it.
pub(crate) struct Tab {
    node: Arc<Mutex<Node>>,
    name: &'static str,
}

impl Browser {
    /// One whose pages talk to the server at this address. The name is the test's.
    pub(crate) async fn start(server: &str, name: &str) -> Self {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
        let failed = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser").join(name);
        let mut command = Command::new("node");
        command.current_dir(project).arg("drive.mjs").arg(server).arg(failed);
        let node = blocking(move || {
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node is installed");
            let answers = BufReader::new(child.stdout.take().unwrap()).lines();
            let mut node = Node { child, answers };
            node.hears();
            node
        });
        Self { node: Arc::new(Mutex::new(node.await)) }
    }

    /// A tab with the page, which makes a chat of its own.
    pub(crate) async fn tab(&self, name: &'static str) -> Tab {
        self.tab_at(name, "/").await
    }

    /// A tab with the page at this path.
    pub(crate) async fn tab_at(&self, name: &'static str, path: &str) -> Tab {
        let tab = Tab { node: self.node.clone(), name };
        tab.order("open", json!({ "at": path })).await;
        tab
    }

    /// Closes it.
    pub(crate) async fn close(self) {
        let ended = blocking(move || {
            let mut node = self.node.lock().unwrap();
            node.says(&json!({ "do": "close" }));
            drop(node.child.stdin.take());
            node.child.wait().unwrap()
        });
        assert!(ended.await.success());
    }
}

impl Node {
    fn says(&mut self, order: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    fn hears(&mut self) -> Value {
        let answer: Value = serde_json::from_str(&self.answers.next().expect(MISSING).unwrap()).unwrap();
        assert_eq!(answer.get("error"), None, "{}", answer["error"].as_str().unwrap_or_default());
        answer["ok"].clone()
    }
}

impl Tab {
    async fn order(&self, what: &str, mut order: Value) -> Value {
        order["tab"] = self.name.into();
        order["do"] = what.into();
        let node = self.node.clone();
        blocking(move || {
            let mut node = node.lock().unwrap();
            node.says(&order);
            node.hears()
        })
        .await
    }

    /// The id of its chat, which its URL has.
    pub(crate) async fn chat(&self) -> String {
        let url = self.order("url", json!({})).await;
        url.as_str().unwrap().strip_prefix("/?chat=").unwrap().to_owned()
    }

    pub(crate) async fn says(&self, words: &str) {
        self.order("say", json!({ "text": words })).await;
    }

    /// Waits until the conversation is shown with just these lines, and nothing is under way.
    pub(crate) async fn shows(&self, lines: &[&str]) {
        self.order("shows", json!({ "lines": lines, "busy": false })).await;
    }

    /// The same, while the page waits for more.
    pub(crate) async fn shows_so_far(&self, lines: &[&str]) {
        self.order("shows", json!({ "lines": lines, "busy": true })).await;
    }

    /// Says yes to a call of this tool: the first has the place 0.
    pub(crate) async fn approves(&self, tool: &str, place: usize) {
        self.order("approve", json!({ "tool": tool, "place": place })).await;
    }

    /// Says no to it, and why.
    pub(crate) async fn denies(&self, tool: &str, place: usize, reason: &str) {
        self.order("deny", json!({ "tool": tool, "place": place, "reason": reason })).await;
    }

    /// Clicks the button of this name.
    pub(crate) async fn clicks(&self, button: &str) {
        self.order("click", json!({ "name": button })).await;
    }

    pub(crate) async fn reloads(&self) {
        self.order("reload", json!({})).await;
    }

    /// What went wrong, as the page tells it.
    pub(crate) async fn alert(&self) -> String {
        self.order("alert", json!({})).await.as_str().unwrap().to_owned()
    }

    /// What it asked of the server and how that was answered, oldest first, with `{chat}` in the place of the chat's id.
    pub(crate) async fn asked(&self) -> Vec<String> {
        let chat = self.chat().await;
        let asked = self.order("requests", json!({})).await;
        let line = |line: &Value| line.as_str().unwrap().replace(&chat, "{chat}");
        asked.as_array().unwrap().iter().map(line).collect()
    }

    /// What was reported as an error in its console.
    pub(crate) async fn errors(&self) -> Vec<String> {
        let errors = self.order("errors", json!({})).await;
        errors.as_array().unwrap().iter().map(|error| error.as_str().unwrap().to_owned()).collect()
    }
}

/// The server may run on this thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}
