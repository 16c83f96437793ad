//! The example page in a real Chromium, driven by a process of Node (`tests/browser`).

use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::sync::oneshot;

const MISSING: &str = "run `npm ci --ignore-scripts` in tests/browser and in examples/page, and install Debian's \
                       package chromium; what went wrong stands above";

/// Who waits for which answer.
type Waiting = HashMap<u64, oneshot::Sender<Value>>;

/// The process, which all tests of this one share: it ends when this one is gone, and its stdin with it.
struct Driver {
    stdin: Mutex<ChildStdin>,
    /// Nobody can wait any more once the process has ended.
    waiting: Arc<Mutex<Option<Waiting>>>,
    ids: AtomicU64,
}

impl Driver {
    fn shared() -> &'static Self {
        static SHARED: OnceLock<Driver> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    fn start() -> Self {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
        let mut command = Command::new("node");
        command.current_dir(project).arg("drive.mjs").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("node is installed");
        let stdin = Mutex::new(child.stdin.take().unwrap());
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let waiting = Arc::new(Mutex::new(Some(Waiting::new())));
        let answered = waiting.clone();
        std::thread::spawn(move || {
            for line in answers.map_while(Result::ok) {
                let answer: Value = serde_json::from_str(&line).unwrap();
                let mut waiting = answered.lock().unwrap();
                let who = waiting.as_mut().unwrap().remove(&answer["id"].as_u64().unwrap());
                // Whoever failed does not wait.
                let _gone = who.unwrap().send(answer);
            }
            *answered.lock().unwrap() = None;
            child.wait().unwrap();
        });
        Self { stdin, waiting, ids: AtomicU64::new(0) }
    }

    /// Gives the order; the answer comes when it is carried out.
    fn give(&self, mut order: Value) -> oneshot::Receiver<Value> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap().as_mut().expect(MISSING).insert(id, answer);
        order["id"] = id.into();
        writeln!(self.stdin.lock().unwrap(), "{order}").expect(MISSING);
        answered
    }

    async fn order(&self, order: Value) -> Value {
        let answer = self.give(order).await.expect(MISSING);
        assert!(answer.get("error").is_none(), "{}", answer["error"].as_str().unwrap());
        answer["ok"].clone()
    }
}

/// A browser of a test's own. It has to be closed; of a test that fails before, what its tabs show is put into
/// `target/tmp/browser`.
pub(crate) struct Browser {
    test: &'static str,
}

/// A tab of it.
pub(crate) struct Tab {
    test: &'static str,
    name: &'static str,
}

impl Browser {
    /// One whose pages talk to the server at this address. The test's name is its own.
    pub(crate) async fn start(server: &str, test: &'static str) -> Self {
        Driver::shared().order(json!({ "do": "start", "test": test, "server": server })).await;
        Self { test }
    }

    /// A tab with the page, which makes a chat of its own.
    pub(crate) async fn tab(&self, name: &'static str) -> Tab {
        self.tab_at(name, "/").await
    }

    /// A tab with the page at this path.
    pub(crate) async fn tab_at(&self, name: &'static str, path: &str) -> Tab {
        let tab = Tab { test: self.test, name };
        tab.order("open", json!({ "at": path })).await;
        tab
    }

    /// Closes it.
    pub(crate) async fn close(self) {
        Driver::shared().order(json!({ "do": "close", "test": self.test })).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser").join(self.test);
            let order = json!({ "do": "fail", "test": self.test, "folder": folder });
            // The driver does that while the test goes down.
            let _answer = Driver::shared().give(order);
        }
    }
}

impl Tab {
    async fn order(&self, what: &str, mut order: Value) -> Value {
        order["test"] = self.test.into();
        order["tab"] = self.name.into();
        order["do"] = what.into();
        Driver::shared().order(order).await
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

    /// Loads the page anew up to where it asks for the turn under way, which waits until it is let go.
    pub(crate) async fn reloads_held(&self) {
        self.order("reloadHeld", json!({})).await;
    }

    pub(crate) async fn is_let_go(&self) {
        self.order("letGo", json!({})).await;
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
