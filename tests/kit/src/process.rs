//! A server as its own process, as an operator starts it.

use super::{Client, Pty, eventually, postgres_if_chosen};
use crate::built;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The output of a process so far, stdout and stderr.
#[derive(Debug, Clone, Default)]
pub(crate) struct PrintedOutput(Arc<Mutex<String>>);

impl PrintedOutput {
    /// The whole output.
    pub(crate) fn all(&self) -> String {
        self.0.lock().unwrap().clone()
    }

    /// Collects the lines until their end.
    fn follow(&self, lines: Lines<impl BufRead + Send + 'static>) -> JoinHandle<()> {
        let printed = self.clone();
        std::thread::spawn(move || {
            lines.for_each(|line| printed.0.lock().unwrap().push_str(&format!("{}\n", line.unwrap())));
        })
    }
}

/// A running server. Dropping it kills the process.
pub struct Process {
    pub client: Client,
    child: Child,
    printed: PrintedOutput,
    /// They end when the process has closed its stdout and stderr.
    listeners: Vec<JoinHandle<()>>,
}

impl Process {
    /// The peak resident size of the process so far, in KiB.
    pub fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Starts the server's binary, in this folder, with these variables.
    pub async fn start(dir: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(built("holdpoint"));
        if let Some(url) = postgres_if_chosen().await {
            command.env("HOLDPOINT_DATABASE__URL", url);
        }
        Self::spawn(command.current_dir(dir).envs(variables.iter().copied()))
    }

    /// Starts any command that prints the server's address as the binary does.
    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_with(command, Stdio::null(), Stdio::inherit())
    }

    /// The same, with the log captured.
    pub fn spawn_captured(command: &mut Command) -> Self {
        Self::spawn_with(command, Stdio::null(), Stdio::piped())
    }

    /// The same at this terminal: the terminal is its stdin and its stderr.
    pub fn spawn_at(command: &mut Command, terminal: &Pty) -> Self {
        Self::spawn_with(command, terminal.end().into(), terminal.end().into())
    }

    fn spawn_with(command: &mut Command, stdin: Stdio, stderr: Stdio) -> Self {
        let mut child = command
            .env("HOLDPOINT_SERVER__BIND", "127.0.0.1:0")
            .env_remove("DATABASE_URL")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.split_once("holdpoint listens on ").map(|(_, it)| it.trim().to_owned()))
            .expect("the server prints its address");
        // The rest of its output is read, so that the process never blocks on a full pipe.
        let printed = PrintedOutput::default();
        let mut listeners = vec![printed.follow(lines)];
        listeners.extend(child.stderr.take().map(|logs| printed.follow(BufReader::new(logs).lines())));
        Self { client: Client::new(address), child, printed, listeners }
    }

    /// The output after its address, including the log if that is captured.
    pub fn printed(&self) -> String {
        self.printed.all()
    }

    /// A client of its operator listener, after that is logged in the captured log. `server.metrics_bind` has
    /// to be set.
    pub async fn operators(&self) -> Client {
        let address = async || {
            let printed = self.printed();
            let line = printed.lines().find(|line| line.contains("the metrics are served"))?.to_owned();
            let start = line.find("127.0.0.1:")?;
            let end = line[start..].find(['"', ' ']).map_or(line.len(), |length| start + length);
            Some(line[start..end].to_owned())
        };
        Client::new(format!("http://{}", eventually("the address is logged", address).await))
    }

    /// Asks the process to stop, waits for its end, and returns its output.
    pub fn finish(mut self) -> String {
        self.terminate();
        assert!(self.child.wait().unwrap().success(), "{}", self.printed());
        for listener in self.listeners.drain(..) {
            listener.join().unwrap();
        }
        self.printed.all()
    }

    /// Kills the process at once, as `kill -9` does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks the process to stop, as an operator does.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Asks the process to stop, as ctrl-C in its terminal does.
    pub fn interrupt(&self) {
        self.signal("-INT");
    }

    /// Suspends the process, as a suspended machine would.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    pub fn id(&self) -> String {
        self.child.id().to_string()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.id()]).status().unwrap();
        assert!(sent.success());
    }

    /// Whether the process ended successfully; `None` while it runs.
    pub fn ended(&mut self) -> Option<bool> {
        self.child.try_wait().unwrap().map(|status| status.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}
