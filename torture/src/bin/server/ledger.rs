//! The ledger: what really happened, written by the tools themselves, past the server.

use holdpoint::config::Config;
use sea_orm::{ConnectOptions, Database, DatabaseConnection, DbErr, FromQueryResult, Statement};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::OnceCell;

/// How long a tool waits to see its row. It does its work all the same.
const LOOK: Duration = Duration::from_secs(2);

/// The file, and a connection of the tools' own to the rows.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    path: Arc<Path>,
    options: ConnectOptions,
    /// Made when it is first wanted: the server may be about to make the database.
    rows: Arc<OnceCell<DatabaseConnection>>,
}

/// How a call's row stood when its tool began.
#[derive(Debug, Serialize, FromQueryResult)]
pub(crate) struct Seen {
    #[serde(rename = "seen_state")]
    pub(crate) state: String,
    #[serde(rename = "seen_validated")]
    pub(crate) validated: Option<bool>,
    #[serde(rename = "exec")]
    pub(crate) exec_id: Option<String>,
}

/// One line.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    /// `start`, `effect` or `end`; `refused`, where it was promised that there will be no effect.
    pub(crate) what: &'a str,
    /// What a service downstream knows the call by: the call's id.
    pub(crate) key: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) user: &'a str,
    #[serde(flatten)]
    pub(crate) execution: Option<&'a Execution>,
    /// At the end: `ok` or `fail`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'a str>,
}

/// What a line says of the execution that writes it.
#[derive(Debug, Serialize)]
pub(crate) struct Execution {
    pub(crate) call: String,
    pub(crate) attempt: u32,
    /// SHA-256 of the inputs as RFC 8785 writes them.
    pub(crate) args_sha256: String,
    /// Absent if the row could not be read when it began.
    #[serde(flatten)]
    pub(crate) seen: Option<Seen>,
}

/// A line and what every line has.
#[derive(Serialize)]
struct Dated<'a> {
    #[serde(flatten)]
    line: &'a Line<'a>,
    /// Microseconds since 1970, by the machine's clock, which is the database's too.
    at: u64,
    pid: u32,
}

impl Ledger {
    /// At this path, where several processes may write at once.
    pub(crate) fn at(path: &Path, config: &Config) -> Self {
        let mut options = ConnectOptions::new(config.database.url.expose_secret());
        options.max_connections(2).acquire_timeout(LOOK).sqlx_logging(false);
        Self { path: path.into(), options, rows: Arc::default() }
    }

    /// How the row of a call stands, if that can be said in time.
    pub(crate) async fn look(&self, call: &str) -> Option<Seen> {
        tokio::time::timeout(LOOK, self.row(call)).await.ok()?.ok()?
    }

    async fn row(&self, call: &str) -> Result<Option<Seen>, DbErr> {
        let rows = self.rows.get_or_try_init(|| Database::connect(self.options.clone())).await?;
        let statement = Statement::from_sql_and_values(
            rows.get_database_backend(),
            "SELECT state, validated, exec_id FROM tool_calls WHERE tool_call_id = $1",
            [call.into()],
        );
        Seen::find_by_statement(statement).one(rows).await
    }

    /// Writes a line, for good.
    pub(crate) async fn write(&self, line: &Line<'_>) -> std::io::Result<()> {
        let (path, text) = (self.path.clone(), text(line)?);
        tokio::task::spawn_blocking(move || append(&open(&path)?, &text)).await?
    }

    /// Writes an effect, or that there will be none, unless one of the two was written for this key: then gives that
    /// line. Of all processes one is the first.
    pub(crate) async fn write_once(&self, line: &Line<'_>) -> std::io::Result<Option<Value>> {
        let (path, text, key) = (self.path.clone(), text(line)?, line.key.to_owned());
        tokio::task::spawn_blocking(move || {
            let file = open(&path)?;
            file.lock()?;
            let found = written(&file, &key)?;
            if found.is_none() {
                append(&file, &text)?;
            }
            Ok(found)
        })
        .await?
    }
}

/// An opening of its own for each, because who shares one shares its lock.
fn open(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).read(true).open(path)
}

/// In one write, so that no line of another process is torn by it.
fn append(mut file: &File, text: &[u8]) -> std::io::Result<()> {
    file.write_all(text)?;
    file.sync_data()
}

fn text(line: &Line<'_>) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(&Dated { line, at: machine_micros(), pid: std::process::id() })?;
    text.push(b'\n');
    Ok(text)
}

fn written(file: &File, key: &str) -> std::io::Result<Option<Value>> {
    for line in BufReader::new(file).lines() {
        let line = line?;
        if !line.contains(key) {
            continue;
        }
        let line: Value = serde_json::from_str(&line)?;
        let settles = ["effect", "refused"].iter().any(|what| line.get("what").is_some_and(|it| it == what));
        if settles && line.get("key").is_some_and(|it| it == key) {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

#[expect(clippy::disallowed_methods, reason = "whoever compares the lines of many processes wants one clock")]
fn machine_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
