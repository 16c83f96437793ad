//! Drivers of Chromium: processes of Node (`tests/browser/driver.mjs`).

use crate::in_repository;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

const MISSING: &str = "run `npm ci --ignore-scripts` in tests/browser and in each folder of examples, and install Debian's \
                       package chromium-headless-shell; what went wrong stands above";

/// The pending commands and the receivers of their answers.
type PendingCommands = HashMap<u64, oneshot::Sender<Value>>;

/// A driver process. It ends when its stdin is closed with this process.
pub struct Driver {
    stdin: Mutex<ChildStdin>,
    /// `None` after the process has ended: no command can be answered then.
    waiting: Arc<Mutex<Option<PendingCommands>>>,
    ids: AtomicU64,
}

impl Driver {
    /// Starts this script of `tests/browser`.
    pub fn start(script: &str, argument: Option<&Path>) -> Self {
        let mut command = Command::new("node");
        command.current_dir(in_repository("tests/browser"));
        command.arg(script).args(argument).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("node is installed");
        let stdin = Mutex::new(child.stdin.take().unwrap());
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        let waiting = Arc::new(Mutex::new(Some(PendingCommands::new())));
        let answered = waiting.clone();
        std::thread::spawn(move || {
            for line in answers.map_while(Result::ok) {
                let answer: Value = serde_json::from_str(&line).unwrap();
                let mut waiting = answered.lock().unwrap();
                let waiter = waiting.as_mut().unwrap().remove(&answer["id"].as_u64().unwrap());
                // A test that has failed no longer waits.
                let _closed = waiter.unwrap().send(answer);
            }
            *answered.lock().unwrap() = None;
            child.wait().unwrap();
        });
        Self { stdin, waiting, ids: AtomicU64::new(0) }
    }

    /// Sends the command. The receiver gets the answer after the command has run.
    pub fn send(&self, mut command: Value) -> oneshot::Receiver<Value> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap().as_mut().expect(MISSING).insert(id, answer);
        command["id"] = id.into();
        writeln!(self.stdin.lock().unwrap(), "{command}").expect(MISSING);
        answered
    }

    /// Returns the value that the driver answers, or the text of the error.
    pub async fn answer(&self, command: Value) -> Result<Value, String> {
        let answer = self.send(command).await.expect(MISSING);
        answer["error"].as_str().map_or_else(|| Ok(answer["ok"].clone()), |error| Err(error.to_owned()))
    }

    /// Returns the value that the driver answers.
    pub async fn command(&self, command: Value) -> Value {
        self.answer(command).await.unwrap_or_else(|error| panic!("{error}"))
    }
}
