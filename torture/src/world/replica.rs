//! A server under test: started, killed, paused, replaced by another build, and restarted after its death.

use super::Shared;
use crate::clock::Micros;
use crate::mix::{self, Mix};
use crate::random::Random;
use crate::record::{Deed, DeedKind, LogLine};
use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The maximal time until a server prints its address. A server that starts during an outage of the database
/// retries.
const START: Duration = Duration::from_secs(20);
/// The maximal time of a graceful stop.
const STOP: Duration = Duration::from_secs(15);

/// The maximal time of an order, including the orders before it.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(40);

/// An order for a replica.
#[derive(Debug)]
pub(crate) enum ReplicaCommand {
    /// `kill -9`.
    Kill,
    /// Stops the process with SIGSTOP for this time.
    Pause(Duration),
    /// Stops the process with SIGTERM and starts another with these arguments.
    Deploy(Vec<String>),
}

/// A handle on a replica.
#[derive(Debug)]
pub(crate) struct Replica {
    commands: mpsc::Sender<(ReplicaCommand, oneshot::Sender<()>)>,
    pub(crate) address: watch::Receiver<Option<SocketAddr>>,
}

/// The task that keeps a replica running.
pub(super) struct Keeper {
    pub(super) number: usize,
    pub(super) program: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) shared: Arc<Shared>,
    pub(super) random: Random,
    /// The arguments of every build.
    pub(super) always: Vec<String>,
    /// The frequencies of the faults, read at each start.
    pub(super) mix: watch::Receiver<Mix>,
}

struct RunningProcess {
    child: Child,
    pid: u32,
    /// The stdin of the process. The process aborts when its stdin closes, however the run ends.
    _tether: ChildStdin,
    _listeners: JoinSet<()>,
}

impl Replica {
    /// Sends an order and waits until it is done. Returns false if the order is not done in time.
    pub(crate) async fn send(&self, command: ReplicaCommand) -> bool {
        let (done, is_done) = oneshot::channel();
        let executed = async { self.commands.send((command, done)).await.is_ok() && is_done.await.is_ok() };
        timeout(COMMAND_TIMEOUT, executed).await.unwrap_or_default()
    }

    pub(super) fn start(keeper: Keeper, keeping: &mut JoinSet<()>, first: Vec<String>) -> Self {
        let (commands, received) = mpsc::channel(4);
        let (publish, address) = watch::channel(None);
        keeping.spawn(keeper.keep(received, publish, first));
        Self { commands, address }
    }
}

impl Keeper {
    async fn keep(
        mut self,
        mut commands: mpsc::Receiver<(ReplicaCommand, oneshot::Sender<()>)>,
        address: watch::Sender<Option<SocketAddr>>,
        mut arguments: Vec<String>,
    ) {
        loop {
            let faults = mix::faults(&self.mix.borrow(), self.number, &mut self.random);
            let arguments_now = [arguments.as_slice(), &faults].concat();
            let started = tokio::select! {
                started = self.start(&address, &arguments_now) => started,
                command = commands.recv() => {
                    // An order during the start begins a new start.
                    let Some((command, done)) = command else { return };
                    if let ReplicaCommand::Deploy(next) = command {
                        arguments = next;
                    }
                    let _not_awaited = done.send(());
                    continue;
                }
            };
            let mut running = match started {
                Ok(running) => running,
                Err(error) => {
                    self.log(format!("did not start: {error:#}"));
                    sleep(Duration::from_millis(200)).await;
                    continue;
                }
            };
            self.deed(DeedKind::Start, running.pid, self.shared.clock.now(), arguments_now.join(" "));
            // The loop ends with the process.
            loop {
                tokio::select! {
                    status = running.child.wait() => {
                        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                        self.deed(DeedKind::Died, running.pid, self.shared.clock.now(), how);
                        break;
                    }
                    command = commands.recv() => {
                        let Some((command, done)) = command else { return };
                        let is_running = self.execute(command, &mut running, &mut arguments).await;
                        let _not_awaited = done.send(());
                        if !is_running {
                            break;
                        }
                    }
                }
            }
            address.send_replace(None);
            let pause = self.random.millis(0, 600);
            sleep(pause).await;
        }
    }

    /// Executes an order. Returns false if the process has ended.
    async fn execute(
        &self,
        command: ReplicaCommand,
        running: &mut RunningProcess,
        arguments: &mut Vec<String>,
    ) -> bool {
        let at = self.shared.clock.now();
        match command {
            ReplicaCommand::Kill => {
                if let Ok(Some(status)) = running.child.try_wait() {
                    self.deed(DeedKind::Died, running.pid, at, status.to_string());
                } else {
                    let _already_ended = running.child.kill().await;
                    self.deed(DeedKind::Kill, running.pid, at, String::new());
                }
                false
            }
            ReplicaCommand::Pause(time) => {
                signal(running.pid, Signal::STOP);
                sleep(time).await;
                signal(running.pid, Signal::CONT);
                self.deed(DeedKind::Pause, running.pid, at, String::new());
                true
            }
            ReplicaCommand::Deploy(next) => {
                signal(running.pid, Signal::TERM);
                if timeout(STOP, running.child.wait()).await.is_err() {
                    self.shared
                        .book
                        .broken
                        .lock()
                        .push((at, format!("replica {} does not stop", self.number)));
                    let _already_ended = running.child.kill().await;
                }
                self.deed(DeedKind::Deploy, running.pid, at, next.join(" "));
                *arguments = next;
                false
            }
        }
    }

    async fn start(
        &self,
        address: &watch::Sender<Option<SocketAddr>>,
        arguments: &[String],
    ) -> Result<RunningProcess> {
        let missing_tool = arguments.iter().skip_while(|argument| *argument != "--without").nth(1);
        let mut command = Command::new(&self.program);
        command
            .arg("--config")
            .arg(config_file(&self.folder, self.number, missing_tool.map(String::as_str)))
            .args(&self.always)
            .args(arguments)
            .env_remove("DATABASE_URL")
            .arg("--tethered")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().with_context(|| self.program.display().to_string())?;
        let pid = child.id().context("the process has ended")?;
        let tether = child.stdin.take().context("stdin")?;
        let stdout = child.stdout.take().context("stdout")?;
        let stderr = child.stderr.take().context("stderr")?;
        let mut listeners = JoinSet::new();
        listeners.spawn(listen(stderr, self.shared.clone(), self.number));
        let mut lines = BufReader::new(stdout).lines();
        let found = async {
            while let Some(line) = lines.next_line().await? {
                if let Some((_, url)) = line.split_once("holdpoint listens on http://") {
                    return Ok(url.trim().parse::<SocketAddr>()?);
                }
            }
            anyhow::bail!("it ended without an address")
        };
        let at = timeout(START, found).await.context("no address in time")??;
        let (shared, number) = (self.shared.clone(), self.number);
        listeners.spawn(async move {
            // The task reads all further output, so that the process never blocks on a full pipe.
            while let Ok(Some(line)) = lines.next_line().await {
                keep(&shared, number, line);
            }
        });
        address.send_replace(Some(at));
        Ok(RunningProcess { child, pid, _tether: tether, _listeners: listeners })
    }

    fn log(&self, text: String) {
        keep(&self.shared, self.number, text);
    }

    fn deed(&self, kind: DeedKind, pid: u32, at: Micros, what: String) {
        let until = self.shared.clock.now();
        let deed = Deed { at, until, kind, replica: Some(self.number), pid: Some(pid), what };
        self.shared.book.deeds.lock().push(deed);
    }
}

/// Returns the path of a replica's configuration, for a build that lacks this tool.
pub(super) fn config_file(folder: &Path, replica: usize, missing_tool: Option<&str>) -> PathBuf {
    folder.join(format!(
        "replica-{replica}{}.toml",
        missing_tool.map(|tool| format!("-without-{tool}")).unwrap_or_default()
    ))
}

async fn listen(from: impl AsyncRead + Unpin, shared: Arc<Shared>, number: usize) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        keep(&shared, number, line);
    }
}

fn keep(shared: &Shared, replica: usize, text: String) {
    shared.book.logs.lock().push(LogLine { at: shared.clock.now(), replica, text });
}

pub(super) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // The process may have ended already.
        let _sent = kill_process(pid, signal);
    }
}
