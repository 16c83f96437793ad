//! The servers of a run, and their processes.

use crate::http::READY;
use crate::load::Server;
use crate::table::{AI_SDK, FLOOR_PASS, FLOOR_UI, HOLDPOINT, UPSTREAM};
use crate::wire::Wire;
use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// The core of the server under test.
const SERVER_CORE: &str = "0";

/// The core of everything else: the clients, the fake model and Postgres.
const DRIVER_CORE: &str = "1";

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A server to measure.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) wire: Wire,
    start: Start,
}

enum Start {
    /// The fake model, which runs already.
    Upstream,
    Floor(&'static str),
    AiSdk,
    Holdpoint,
}

/// The servers, in the order in which each repeat measures them.
pub(crate) const TARGETS: [Target; 5] = [
    Target { name: UPSTREAM, wire: Wire::OpenAi, start: Start::Upstream },
    Target { name: FLOOR_PASS, wire: Wire::OpenAi, start: Start::Floor("pass") },
    Target { name: FLOOR_UI, wire: Wire::OpenAi, start: Start::Floor("ui") },
    Target { name: AI_SDK, wire: Wire::AiSdk, start: Start::AiSdk },
    Target { name: HOLDPOINT, wire: Wire::Holdpoint, start: Start::Holdpoint },
];

/// A running server. It is killed when this value is dropped.
pub(crate) struct RunningServer {
    child: Child,
    port: u16,
}

impl Target {
    /// Whether the server is the fake model.
    pub(crate) const fn is_upstream(&self) -> bool {
        matches!(self.start, Start::Upstream)
    }

    /// Whether the server has a database and the tool.
    pub(crate) const fn is_backend(&self) -> bool {
        matches!(self.start, Start::AiSdk | Start::Holdpoint)
    }

    /// Starts the server on a core of its own, and waits until it is ready. `model` and `database` are URLs.
    pub(crate) async fn start(
        &self,
        ports: &mut Ports,
        model: &str,
        database: &str,
        logs: &Path,
    ) -> Result<RunningServer> {
        let port = ports.free()?;
        let mut command = pinned();
        match self.start {
            Start::Upstream => bail!("the model runs already"),
            Start::Floor(floor) => {
                command.arg(std::env::current_exe()?).args(["floor", floor, "--model", model]);
                command.args(["--port", &port.to_string()]);
            }
            Start::Holdpoint => {
                command.arg(std::env::current_exe()?).args(["holdpoint", "--model", model]);
                command.args(["--database", database, "--port", &port.to_string()]);
            }
            Start::AiSdk => {
                command.arg(node()?).arg("server.mjs").current_dir("bench/ai-sdk");
                let port = port.to_string();
                let set = [("PORT", port.as_str()), ("MODEL_URL", model), ("DATABASE_URL", database)];
                command.envs(set).env("NODE_ENV", "production");
            }
        }
        RunningServer::spawn(command, port, &logs.join(self.name).with_extension("log")).await
    }
}

impl RunningServer {
    /// Starts the fake model on the core of the clients.
    pub(crate) async fn model(ports: &mut Ports, logs: &Path) -> Result<Self> {
        let port = ports.free()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["model", "--port", &port.to_string()]);
        Self::spawn(command, port, &logs.join("model.log")).await
    }

    async fn spawn(mut command: Command, port: u16, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        command.stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let mut running = Self { child: command.spawn().with_context(|| format!("{command:?}"))?, port };
        let began = Instant::now();
        while !running.is_ready().await {
            if running.child.try_wait()?.is_some() || began.elapsed() > START_TIMEOUT {
                bail!("a server did not start; see {}", log.display());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(running)
    }

    pub(crate) fn server(&self, wire: Wire) -> Server {
        Server { port: self.port, wire }
    }

    pub(crate) fn pid(&self) -> Result<u32> {
        self.child.id().context("the server has ended")
    }

    /// Returns the base URL of the fake model, as clients of OpenAI take it.
    pub(crate) fn model_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    pub(crate) async fn end(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    async fn is_ready(&self) -> bool {
        let request = async {
            let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
            let request = format!("GET {READY} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            socket.write_all(request.as_bytes()).await?;
            let mut response = String::new();
            socket.read_to_string(&mut response).await?;
            Ok::<_, std::io::Error>(response)
        };
        request.await.is_ok_and(|response| response.starts_with("HTTP/1.1 200 "))
    }
}

/// Ports below those that the system gives to outgoing connections, so that no connection takes one meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Ports(HashSet<u16>);

impl Ports {
    pub(crate) fn free(&mut self) -> Result<u16> {
        let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
        let mut ports = (24700..31000).filter(|port| !self.0.contains(port));
        let port = ports.find(is_free).context("no free port")?;
        self.0.insert(port);
        Ok(port)
    }
}

/// Moves this process, and what it starts, to the core beside the server under test.
pub(crate) async fn pin_driver() -> Result<()> {
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("the server under test needs a core of its own, and this machine has only one");
    }
    let mut taskset = Command::new("taskset");
    taskset.args(["--all-tasks", "--cpu-list", "--pid", DRIVER_CORE, &std::process::id().to_string()]);
    let pinned = taskset.output().await.context("taskset")?;
    if !pinned.status.success() {
        bail!("taskset: {}", String::from_utf8_lossy(&pinned.stderr));
    }
    Ok(())
}

fn pinned() -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", SERVER_CORE]);
    command
}

/// Returns the program of the npm package.
fn node() -> Result<std::path::PathBuf> {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => bail!("there is no npm package with Node.js for {other}"),
    };
    let path = format!("bench/ai-sdk/node_modules/node-linux-{machine}/bin/node");
    Path::new(&path)
        .canonicalize()
        .with_context(|| format!("{path} is missing; `cargo xtask bench` installs it"))
}
