//! A server of the OpenAI wire that nobody here wrote: npm's `@copilotkit/aimock`, with the fixtures of
//! `tests/wire`.

use super::Client;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running aimock. Dropping it kills it.
pub(crate) struct Aimock {
    client: Client,
    child: Child,
}

impl Aimock {
    pub(crate) fn start() -> Self {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire");
        let program = "node_modules/@copilotkit/aimock/dist/cli.js";
        assert!(dir.join(program).exists(), "run `npm ci --ignore-scripts` in {}", dir.display());
        let mut child = Command::new("node")
            .current_dir(dir)
            .args([program, "-p", "0", "-h", "127.0.0.1", "-f", "fixtures/holdpoint.json"])
            // Pieces of 8 characters, 5 ms apart; what no fixture matches is an error.
            .args(["-c", "8", "-l", "5", "--strict"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("node is installed");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.split_once("server listening on ").map(|(_, it)| it.trim().to_owned()))
            .expect("aimock prints its address");
        std::thread::spawn(move || lines.for_each(drop));
        Self { client: Client::new(address), child }
    }

    /// What `model.base_url` has to be.
    pub(crate) fn base_url(&self) -> String {
        self.client.url("/v1")
    }

    /// The requests for a completion so far, oldest first, each with its answer.
    pub(crate) async fn journal(&self) -> Vec<Value> {
        let journal = self.client.get("/__aimock/journal?path=/v1/chat/completions").await;
        assert_eq!(journal.status, 200);
        journal.body.as_array().unwrap().clone()
    }
}

impl Drop for Aimock {
    fn drop(&mut self) {
        // It may be gone already.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}
