//! A server as a process of its own, as an operator starts it.

use super::{Client, postgres_if_chosen};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server. Dropping it kills it.
pub(crate) struct Process {
    pub(crate) client: Client,
    child: Child,
}

impl Process {
    /// The server's binary, in this folder, with these variables.
    pub(crate) async fn start(dir: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        if let Some(url) = postgres_if_chosen().await {
            command.env("HOLDPOINT_DATABASE__URL", url);
        }
        Self::spawn(command.current_dir(dir).envs(variables.iter().copied()))
    }

    /// Any command that prints the server's address as the binary does.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0")
            .env_remove("DATABASE_URL")
            // The tests' own; the server takes no `HOLDPOINT_…` that it does not know.
            .env_remove("HOLDPOINT_TEST_DATABASE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.split_once("holdpoint listens on ").map(|(_, it)| it.trim().to_owned()))
            .expect("the server prints its address");
        // Whatever else it prints is let go, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { client: Client::new(address), child }
    }

    /// Kills it at once, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, as an operator does.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Has it stand still, as a machine that is suspended does.
    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    /// Has it go on.
    pub(crate) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Whether it went well, once it has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<bool> {
        self.child.try_wait().unwrap().map(|status| status.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}
