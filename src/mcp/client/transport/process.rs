//! The child process of a server.

use crate::agent::Tasks;
use crate::mcp::client::log::redaction::Redaction;
use crate::mcp::client::log::stderr;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long a process may take to end after its input is closed, and again after SIGTERM.
const END_GRACE: Duration = Duration::from_secs(2);

/// A child process in a group of its own, with the processes that it starts.
pub(in crate::mcp) struct Process(Child);

impl Process {
    /// Starts the program, with these variables and no others.
    pub(in crate::mcp) fn start(
        server: &str,
        command: &Path,
        args: &[String],
        env: &BTreeMap<String, OsString>,
        tasks: &Tasks,
        redaction: &Redaction,
    ) -> Result<(Self, ChildStdout, ChildStdin), String> {
        let started = Command::new(command)
            .args(args)
            .env_clear()
            .envs(env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = started.map_err(|error| format!("its program does not start: {error}"))?;
        let pipes = (child.stdout.take(), child.stdin.take(), child.stderr.take());
        let (Some(stdout), Some(stdin), Some(stderr)) = pipes else {
            return Err("its program has no pipes".to_owned());
        };
        let (server, redaction) = (server.to_owned(), redaction.clone());
        tasks.spawn_background(async move { stderr::log(&server, stderr, &redaction).await });
        Ok((Self(child), stdout, stdin))
    }

    /// Completes when the process has ended.
    pub(in crate::mcp) async fn ended(&mut self) {
        // A process whose end cannot be seen counts as ended.
        let _status = self.0.wait().await;
    }

    /// Ends the process and its group. Its input has to be closed before.
    pub(in crate::mcp) async fn end(mut self) {
        if timeout(END_GRACE, self.ended()).await.is_ok() {
            return;
        }
        self.signal(Signal::TERM);
        if timeout(END_GRACE, self.ended()).await.is_err() {
            self.signal(Signal::KILL);
            self.ended().await;
        }
    }

    /// Sends a signal to the group. Until the process is waited for, no other group has its number.
    fn signal(&self, signal: Signal) {
        let group = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let Some(Err(error)) = group.map(|group| kill_process_group(group, signal)) {
            tracing::debug!(%error, "the process of an MCP server could not be signalled");
        }
    }
}
