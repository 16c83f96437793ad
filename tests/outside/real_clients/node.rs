//! The Node processes that run the pages.

use super::page::Version;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A process of Node that opens pages of one version one after the other. Loading the client takes longer
/// than most of what a page does, so processes are reused.
#[derive(Debug)]
pub(super) struct Node {
    version: Version,
    child: Child,
    user: ChildStdin,
    shown: UnboundedReceiver<String>,
    /// Whether its page has no request open.
    is_settled: bool,
}

/// The processes without an open page. They end with the test process.
static IDLE: Mutex<Vec<Node>> = Mutex::new(Vec::new());

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Node {
    /// Takes an idle process for this version, or starts one.
    pub(super) fn of(version: Version) -> Self {
        let mut idle = IDLE.lock().unwrap();
        let found = idle.iter().position(|node| node.version == version);
        found.map(|at| idle.swap_remove(at)).unwrap_or_else(|| Self::start(version))
    }

    fn start(version: Version) -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
        assert!(
            dir.join("node_modules/react4").exists(),
            "run `npm ci --ignore-scripts` in {}",
            dir.display()
        );
        let mut node = Command::new("node");
        node.current_dir(dir).args(["driver/drive.mjs", version.number()]);
        let child = node.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("node is installed");
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (shows, shown) = unbounded_channel();
        // A separate thread reads the output, because the servers run on the threads of their tests.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                drop(shows.send(line));
            }
        });
        let user = child.stdin.take().unwrap();
        Self { version, child, user, shown, is_settled: true }
    }

    /// Performs this action of the page's user, and returns what the page shows afterwards.
    pub(super) async fn act(&mut self, act: &Value) -> Value {
        self.is_settled = false;
        writeln!(self.user, "{act}").unwrap();
        let shown = self.shown.recv().await.expect("the page is there");
        self.is_settled = act.get("until").is_none();
        serde_json::from_str(&shown).unwrap()
    }

    /// Makes the process idle after its page was closed. A process whose page still has a request open ends.
    pub(super) fn give_back(self) {
        if self.is_settled {
            IDLE.lock().unwrap().push(self);
        }
    }
}
