//! The Postgres server of a run. Its shell stops it and removes its folder when this process ends.

use crate::machine::Snapshot;
use anyhow::{Context, Result, bail};
use sea_orm::{ConnectionTrait, Database, DatabaseConnection, DbBackend, Statement};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const SCRIPT: &str = include_str!("../../tests/kit/src/postgres.sh");

const MISSING: &str = "Postgres is needed (Debian: apt install postgresql); the cause is printed above";

/// Without checkpoints during a step, and without compiled queries, whose cost comes at unforeseen times.
const OPTIONS: &str = "-c shared_buffers=256MB -c max_wal_size=2GB -c checkpoint_timeout=30min -c jit=off";

/// The chats of the server on the AI SDK, and the effects of the tool of each server.
const TABLES: [&str; 2] = [
    "CREATE TABLE chats (id text PRIMARY KEY, messages jsonb NOT NULL, updated_at timestamptz NOT NULL DEFAULT now())",
    "CREATE TABLE effects (id bigserial PRIMARY KEY, tool_call_id text NOT NULL, at timestamptz NOT NULL DEFAULT now())",
];

/// A running server, which syncs its commits to the disk.
pub(crate) struct Postgres {
    port: u16,
    databases: u32,
    /// The process whose descendants do all work.
    pub(crate) pid: u32,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    shell: Child,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Effects {
    pub(crate) runs: i64,
    pub(crate) calls: i64,
}

impl Postgres {
    pub(crate) async fn start(port: u16) -> Result<Self> {
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
        let mut postgres = Self { port, databases: 0, pid: 0, stdin, answers, shell };
        postgres.answered().await?;
        postgres.stdin.write_all(format!("start {port} {OPTIONS}\n").as_bytes()).await?;
        postgres.answered().await?;
        let backend: i32 =
            one(&postgres.connect("postgres").await?, "SELECT pg_backend_pid()", "pg_backend_pid").await?;
        let parent = Snapshot::now()?.parent(u32::try_from(backend)?);
        postgres.pid = parent.context("the process of Postgres")?;
        Ok(postgres)
    }

    /// Creates a database with the tables of the servers and returns its name.
    pub(crate) async fn create(&mut self) -> Result<String> {
        self.databases += 1;
        let name = format!("bench_{}", self.databases);
        self.connect("postgres").await?.execute_unprepared(&format!("CREATE DATABASE {name}")).await?;
        let database = self.connect(&name).await?;
        for table in TABLES {
            database.execute_unprepared(table).await?;
        }
        Ok(name)
    }

    pub(crate) async fn drop(&self, name: &str) -> Result<()> {
        let sql = format!("DROP DATABASE {name} WITH (FORCE)");
        self.connect("postgres").await?.execute_unprepared(&sql).await?;
        Ok(())
    }

    pub(crate) async fn effects(&self, name: &str) -> Result<Effects> {
        let database = self.connect(name).await?;
        Ok(Effects {
            runs: one(&database, "SELECT count(*) AS n FROM effects", "n").await?,
            calls: one(&database, "SELECT count(DISTINCT tool_call_id) AS n FROM effects", "n").await?,
        })
    }

    /// Returns the position in the write-ahead log, in bytes.
    pub(crate) async fn log_position(&self) -> Result<f64> {
        const POSITION: &str = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::FLOAT8 AS n";
        one(&self.connect("postgres").await?, POSITION, "n").await
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Stops the server and removes its folder.
    pub(crate) async fn end(self) -> Result<()> {
        let Self { stdin, answers, mut shell, .. } = self;
        drop((stdin, answers));
        shell.wait().await?;
        Ok(())
    }

    async fn connect(&self, database: &str) -> Result<DatabaseConnection> {
        Ok(Database::connect(self.url(database)).await?)
    }

    async fn answered(&mut self) -> Result<()> {
        match self.answers.next_line().await? {
            Some(answer) if answer == "ok" => Ok(()),
            _ => bail!(MISSING),
        }
    }
}

async fn one<T: sea_orm::TryGetable>(database: &DatabaseConnection, sql: &str, column: &str) -> Result<T> {
    let row = database.query_one_raw(Statement::from_string(DbBackend::Postgres, sql)).await?;
    Ok(row.with_context(|| format!("no row: {sql}"))?.try_get("", column)?)
}

/// Returns the user id or the group id of the user `postgres`.
fn id(which: &str) -> Result<u32> {
    let output = std::process::Command::new("id").args([which, "postgres"]).output()?;
    String::from_utf8(output.stdout)?.trim().parse().context(MISSING)
}

impl Effects {
    /// Each of these calls ran once.
    pub(crate) fn once(calls: u32) -> Self {
        Self { runs: calls.into(), calls: calls.into() }
    }
}
