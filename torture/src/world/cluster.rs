//! The Postgres server of a run. The server belongs to a shell, which stops the server and removes its folder
//! when the shell's stdin closes. The run therefore leaves no server, however the run ends.

use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const SCRIPT: &str = include_str!("../../../tests/kit/src/postgres.sh");

const MISSING: &str = "Postgres is needed (Debian: apt install postgresql); the cause is printed above";

/// A running Postgres server.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) address: SocketAddr,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    shell: Child,
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir("/")
            // A signal from the terminal ends the run, but must not end the shell, which removes the server.
            .process_group(0);
        // Postgres refuses to run as root.
        if rustix::process::geteuid().is_root() {
            shell.uid(id("-u")?).gid(id("-g")?);
        }
        let mut shell = Command::from(shell).spawn().context("sh")?;
        let stdin = shell.stdin.take().context("the shell's stdin")?;
        let answers = BufReader::new(shell.stdout.take().context("the shell's stdout")?).lines();
        let port = TcpListener::bind(("127.0.0.1", 0)).await?.local_addr()?.port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut cluster = Self { address, stdin, answers, shell };
        cluster.answered().await?;
        cluster.start_again().await?;
        Ok(cluster)
    }

    pub(crate) fn url(&self, address: SocketAddr, database: &str) -> String {
        format!("postgres://postgres@{address}/{database}")
    }

    /// Stops the server at once, like a crash.
    pub(crate) async fn stop_now(&mut self) -> Result<()> {
        self.send("stop").await
    }

    /// Starts the server on the same port with its committed data.
    pub(crate) async fn start_again(&mut self) -> Result<()> {
        self.send(&format!("start {}", self.address.port())).await
    }

    /// Stops the server and removes its folder.
    pub(crate) async fn end(self) -> Result<()> {
        let Self { stdin, mut shell, answers, .. } = self;
        drop((stdin, answers));
        shell.wait().await?;
        Ok(())
    }

    async fn send(&mut self, command: &str) -> Result<()> {
        self.stdin.write_all(format!("{command}\n").as_bytes()).await?;
        self.answered().await
    }

    async fn answered(&mut self) -> Result<()> {
        match self.answers.next_line().await? {
            Some(answer) if answer == "ok" => Ok(()),
            _ => bail!(MISSING),
        }
    }
}

/// Returns the user id or the group id of the user `postgres`.
fn id(which: &str) -> Result<u32> {
    let output = std::process::Command::new("id").args([which, "postgres"]).output()?;
    String::from_utf8(output.stdout)?.trim().parse().context(MISSING)
}
