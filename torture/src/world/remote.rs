//! The remote tools: the service of an HTTP tool, and a worker for each tenant. They are killed and paused like
//! servers, and start again. The MCP servers belong to the servers that start them.

use super::Shared;
use super::replica::signal;
use crate::clock::Micros;
use crate::random::Random;
use crate::record::{Deed, DeedKind};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// An order for a remote tool.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RemoteCommand {
    /// `kill -9`.
    Kill,
    /// Stops the process with SIGSTOP for this time.
    Pause(Duration),
}

/// A handle on a remote tool.
#[derive(Debug)]
pub(crate) struct Remote(mpsc::Sender<RemoteCommand>);

/// The task that keeps a remote tool running.
pub(super) struct Keeper {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) shared: Arc<Shared>,
    pub(super) random: Random,
}

impl Remote {
    pub(super) fn start(keeper: Keeper, keeping: &mut JoinSet<()>) -> Self {
        let (commands, received) = mpsc::channel(4);
        keeping.spawn(keeper.keep(received));
        Self(commands)
    }

    /// Sends an order. A tool with too many orders ignores it.
    pub(crate) fn send(&self, command: RemoteCommand) {
        let _too_many = self.0.try_send(command);
    }
}

impl Keeper {
    async fn keep(mut self, mut commands: mpsc::Receiver<RemoteCommand>) {
        loop {
            match self.start() {
                Ok((child, pid)) => self.serve(child, pid, &mut commands).await,
                Err(error) => eprintln!("a remote tool did not start: {error:#}"),
            }
            let pause = self.random.millis(0, 400);
            sleep(pause).await;
        }
    }

    /// Executes orders until the process has ended.
    async fn serve(&self, mut child: Child, pid: u32, commands: &mut mpsc::Receiver<RemoteCommand>) {
        // The process ends when its stdin closes, also if the run ends by a kill.
        let _tether = child.stdin.take();
        self.deed(DeedKind::Start, pid);
        loop {
            let ended = tokio::select! {
                _status = child.wait() => Some(DeedKind::Crashed),
                command = commands.recv() => match command {
                    Some(RemoteCommand::Pause(time)) => {
                        signal(pid, Signal::STOP);
                        let at = self.shared.clock.now();
                        sleep(time).await;
                        signal(pid, Signal::CONT);
                        self.record(DeedKind::Pause, pid, at);
                        None
                    }
                    Some(RemoteCommand::Kill) | None => {
                        let _already_ended = child.kill().await;
                        Some(DeedKind::Kill)
                    }
                },
            };
            if let Some(ended) = ended {
                return self.deed(ended, pid);
            }
        }
    }

    fn start(&self) -> Result<(Child, u32)> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::null());
        let child = command.kill_on_drop(true).spawn().with_context(|| self.program.display().to_string())?;
        let pid = child.id().context("the process has ended")?;
        Ok((child, pid))
    }

    fn deed(&self, kind: DeedKind, pid: u32) {
        self.record(kind, pid, self.shared.clock.now());
    }

    fn record(&self, kind: DeedKind, pid: u32, at: Micros) {
        let what = self.arguments.iter().find(|part| matches!(part.as_str(), "service" | "worker"));
        let what = what.cloned().unwrap_or_default();
        let until = self.shared.clock.now();
        let deed = Deed { at, until, kind, replica: None, pid: Some(pid), what };
        self.shared.book.deeds.lock().push(deed);
    }
}
