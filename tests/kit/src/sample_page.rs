//! A page in a Chromium of its own, driven by a process of Node (`tests/browser/sample.mjs`).

use super::{PagePackage, in_repository};
use crate::JsonFields;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The page. Its process ends when this is dropped, with its stdin.
pub struct SamplePage {
    stdin: ChildStdin,
    answers: UnboundedReceiver<String>,
}

impl SamplePage {
    /// Builds the page in this folder, and serves it beside the server at this address.
    pub fn start(folder: &Path, server: &str) -> Self {
        let package = PagePackage::installed().folder.join("node_modules/@holdpoint/page");
        let mut command = Command::new("node");
        command.current_dir(in_repository("tests/browser")).arg("sample.mjs");
        command.arg(folder).arg(package).arg(server);
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.expect("node is installed");
        let stdin = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (answer, answers) = unbounded_channel();
        // A separate thread reads the output, because the servers run on the threads of their tests.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                drop(answer.send(line));
            }
            process.wait().unwrap();
        });
        Self { stdin, answers }
    }

    async fn command(&mut self, name: &str, argument: Value) -> Value {
        writeln!(self.stdin, "{}", json!([name, argument])).unwrap();
        let answer = self.answers.recv().await.expect("the page is built and opened; see above");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer.get("error").is_none(), "{name}: {}", answer.text("error"));
        answer["ok"].clone()
    }

    /// Opens a new tab.
    pub async fn opens(&mut self) {
        self.command("open", json!({})).await;
    }

    /// Opens a new tab that gets no events.
    pub async fn opens_without_events(&mut self) {
        self.command("open", json!({ "cut": "/events" })).await;
    }

    pub async fn sends(&mut self, text: &str) {
        self.command("say", json!(text)).await;
    }

    /// Clicks the button of this name.
    pub async fn clicks(&mut self, button: &str) {
        self.command("click", json!(button)).await;
    }

    pub async fn is_enabled(&mut self, button: &str) -> bool {
        self.command("isEnabled", json!(button)).await.as_bool().unwrap()
    }

    /// Waits until the page shows all these texts, and none of the others.
    pub async fn shows(&mut self, with: &[&str], without: &[&str]) {
        self.command("shows", json!({ "with": with, "without": without })).await;
    }

    /// What the tab said with `alert`. It raised no error.
    pub async fn alerts(&mut self) -> Vec<String> {
        let reported = self.command("reported", Value::Null).await;
        assert_eq!(reported["errors"], json!([]));
        reported.list("alerts").iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    }
}
