//! The ledger: the file in which the tools record their work themselves, independently of the server.

use holdpoint::config::Config;
use parking_lot::Mutex;
use sea_orm::{ConnectOptions, Database, DatabaseConnection, DbErr, FromQueryResult, Statement};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

/// How long a tool waits for the row of its call. The tool works without the row after that.
const ROW_TIMEOUT: Duration = Duration::from_secs(2);

/// The file, and the tools' own connection to the database.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    path: Arc<Path>,
    options: ConnectOptions,
    /// Opened at the first use: the server may still be creating the database.
    rows: Arc<OnceCell<DatabaseConnection>>,
    settled: Arc<Mutex<Settled>>,
}

/// The `effect` and `refused` lines by key, in the part of the file that was read so far.
#[derive(Debug, Default)]
struct Settled {
    read: u64,
    lines: HashMap<String, Value>,
}

/// The row of a call when its tool began.
#[derive(Debug, Serialize, FromQueryResult)]
pub(crate) struct Seen {
    #[serde(rename = "seen_state")]
    pub(crate) state: String,
    #[serde(rename = "seen_validated")]
    pub(crate) validated: Option<bool>,
    #[serde(rename = "exec")]
    pub(crate) exec_id: Option<String>,
}

/// One line of the ledger.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    /// `start`, `effect` or `end`. `refused` is a promise that the call will have no effect.
    pub(crate) what: &'a str,
    /// The idempotency key, by which a downstream service knows the call: the id of the call.
    pub(crate) key: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) user: &'a str,
    #[serde(flatten)]
    pub(crate) execution: Option<&'a Execution>,
    /// `ok` or `fail`, in an `end` line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'a str>,
}

/// The execution that writes a line.
#[derive(Debug, Serialize)]
pub(crate) struct Execution {
    pub(crate) call: String,
    pub(crate) attempt: u32,
    /// The SHA-256 hash of the inputs in canonical JSON (RFC 8785).
    pub(crate) args_sha256: String,
    /// The SHA-256 hash of the tool's schema in this build.
    pub(crate) schema_hash: String,
    /// The row at the start of the tool. `None` if the database did not answer in time.
    #[serde(flatten)]
    pub(crate) seen: Option<Seen>,
}

/// A line with the fields that all lines have.
#[derive(Serialize)]
struct Dated<'a> {
    #[serde(flatten)]
    line: &'a Line<'a>,
    /// Microseconds since 1970 by the clock of the machine, which the database uses too.
    at: u64,
    pid: u32,
}

impl Ledger {
    /// Returns the ledger at a path. Several processes may write to the file at once.
    pub(crate) fn at(path: &Path, config: &Config) -> Self {
        let mut options = ConnectOptions::new(config.database.url.expose_secret());
        options.max_connections(2).acquire_timeout(ROW_TIMEOUT).sqlx_logging(false);
        options.set_schema_search_path(&config.database.schema);
        Self { path: path.into(), options, rows: Arc::default(), settled: Arc::default() }
    }

    /// Returns the row of a call, or `None` if the database does not answer in time.
    pub(crate) async fn read_row(&self, call: &str) -> Option<Seen> {
        let row = tokio::time::timeout(ROW_TIMEOUT, self.row(call)).await.ok()?.ok()?;
        Some(row.unwrap_or_else(|| Seen { state: "absent".to_owned(), validated: None, exec_id: None }))
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

    /// Writes a line durably.
    pub(crate) async fn write(&self, line: &Line<'_>) -> std::io::Result<()> {
        let (path, text) = (self.path.clone(), text(line)?);
        tokio::task::spawn_blocking(move || append(&open(&path)?, &text)).await?
    }

    /// Writes an `effect` or `refused` line, unless the file has one of the two for this key: then returns
    /// the existing line. The lock of the file lets only one process be the first.
    pub(crate) async fn write_once(&self, line: &Line<'_>) -> std::io::Result<Option<Value>> {
        let (path, text, key) = (self.path.clone(), text(line)?, line.key.to_owned());
        let settled = self.settled.clone();
        tokio::task::spawn_blocking(move || {
            let file = open(&path)?;
            file.lock()?;
            let mut settled = settled.lock();
            settled.read_on(&file)?;
            let found = settled.lines.get(&key).cloned();
            if found.is_none() {
                append(&file, &text)?;
            }
            Ok(found)
        })
        .await?
    }
}

impl Settled {
    /// Reads the lines since the last read. The last line of a locked file is complete.
    fn read_on(&mut self, mut file: &File) -> std::io::Result<()> {
        file.seek(SeekFrom::Start(self.read))?;
        let mut lines = BufReader::new(file);
        let mut text = String::new();
        while lines.read_line(&mut text)? > 0 && text.ends_with('\n') {
            self.read += text.len() as u64;
            let line: Value = serde_json::from_str(&text)?;
            text.clear();
            let settles =
                ["effect", "refused"].iter().any(|what| line.get("what").is_some_and(|it| it == what));
            if let Some(key) = line.get("key").and_then(Value::as_str).filter(|_| settles) {
                self.lines.insert(key.to_owned(), line);
            }
        }
        Ok(())
    }
}

/// Opens the file anew for each caller, because callers with the same open file share its lock.
fn open(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).read(true).open(path)
}

/// Appends a line in one write, so that lines of different processes do not mix.
fn append(mut file: &File, text: &[u8]) -> std::io::Result<()> {
    file.write_all(text)?;
    file.sync_data()
}

fn text(line: &Line<'_>) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(&Dated { line, at: crate::machine_micros(), pid: std::process::id() })?;
    text.push(b'\n');
    Ok(text)
}
