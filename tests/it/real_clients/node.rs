//! Where pages live.

use super::page::Version;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// A process of Node, in which pages of a version are opened one after the other: to load the client takes longer than
/// most of what a page does.
#[derive(Debug)]
pub(super) struct Node {
    version: Version,
    child: Child,
    user: ChildStdin,
    shown: UnboundedReceiver<String>,
    /// Whether its page asks for nothing.
    is_settled: bool,
}

/// Those in which no page is open. They end with this process.
static IDLE: Mutex<Vec<Node>> = Mutex::new(Vec::new());

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Node {
    /// One in which no page is open.
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
        // The servers run on the threads of their tests.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                drop(shows.send(line));
            }
        });
        let user = child.stdin.take().unwrap();
        Self { version, child, user, shown, is_settled: true }
    }

    /// Has the user of its page do this, and tells what it shows then.
    pub(super) async fn act(&mut self, act: &Value) -> Value {
        self.is_settled = false;
        writeln!(self.user, "{act}").unwrap();
        let shown = self.shown.recv().await.expect("the page is there");
        self.is_settled = act.get("until").is_none();
        serde_json::from_str(&shown).unwrap()
    }

    /// Its page is closed. Whatever that still asks for ends with the process.
    pub(super) fn give_back(self) {
        if self.is_settled {
            IDLE.lock().unwrap().push(self);
        }
    }
}
