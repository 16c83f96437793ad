//! The ledger: the file in which the tools record their work themselves, independently of the server.

use parking_lot::Mutex;
use sea_orm::{ConnectOptions, Database, DatabaseConnection, DbErr, FromQueryResult, Statement};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::OnceCell;

/// How long a tool waits for the row of its call. The tool works without the row after that.
const ROW_TIMEOUT: Duration = Duration::from_secs(2);

/// The file, and the tools' own connection to the database.
#[derive(Debug, Clone)]
pub struct Ledger {
    path: Arc<Path>,
    options: ConnectOptions,
    /// Opened at the first use: the server may still be creating the database.
    rows: Arc<OnceCell<DatabaseConnection>>,
    settled: Arc<Mutex<SettledLines>>,
}

/// The `effect` and `refused` lines by key, in the part of the file that was read so far.
#[derive(Debug, Default)]
struct SettledLines {
    read: u64,
    lines: HashMap<String, Value>,
}

/// The row of a call when its tool began.
#[derive(Debug, Serialize, FromQueryResult)]
pub struct SeenCall {
    #[serde(rename = "seen_state")]
    pub state: String,
    /// Its verdict.
    #[serde(rename = "seen_validated")]
    pub validated: Option<bool>,
    /// Its execution.
    #[serde(rename = "exec")]
    pub exec_id: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// `start`, `effect` or `end`. `told`: a server acknowledged the reported outcome. `refused` is a promise that the
    /// call will have no effect.
    pub what: &'a str,
    /// The idempotency key, by which a downstream service knows the call: the id of the call. Empty in a line of an
    /// MCP server, which learns neither the call nor its user.
    pub key: &'a str,
    pub tool: &'a str,
    /// The user on whose behalf the call runs, with the tenant.
    #[serde(flatten)]
    pub requester: Option<&'a Requester>,
    /// The execution that writes the line.
    #[serde(flatten)]
    pub execution: Option<&'a Execution>,
    /// `ok` or `fail`, in an `end` or a `told` line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'a str>,
}

/// The user on whose behalf a call runs.
#[derive(Debug, Serialize)]
pub struct Requester {
    pub tenant: String,
    pub user: String,
}

/// The execution that writes a line.
#[derive(Debug, Serialize)]
pub struct Execution {
    /// The call. Empty if the tool does not know it.
    pub call: String,
    /// The number of the execution among those of its process, if the tool does not know the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    pub attempt: u32,
    /// The SHA-256 hash of the inputs in canonical JSON (RFC 8785).
    pub args_sha256: String,
    /// The SHA-256 hash of the tool's schema in this build. Empty if only the server knows it.
    pub schema_hash: String,
    /// The row at the start of the tool. `None` if the database did not answer in time.
    #[serde(flatten)]
    pub seen: Option<SeenCall>,
}

/// A line with the fields that all lines have.
#[derive(Serialize)]
struct DatedLine<'a> {
    #[serde(flatten)]
    line: &'a Line<'a>,
    /// Microseconds since 1970 by the clock of the machine, which the database uses too.
    at: u64,
    pid: u32,
}

impl Ledger {
    /// Returns the ledger at a path, with the rows of this database. Several processes may write to the file at once.
    pub fn at(path: &Path, database: &str) -> Self {
        let mut options = ConnectOptions::new(database);
        options.max_connections(2).acquire_timeout(ROW_TIMEOUT).sqlx_logging(false);
        options.set_schema_search_path("holdpoint");
        Self { path: path.into(), options, rows: Arc::default(), settled: Arc::default() }
    }

    /// Returns the row of a call, or `None` if the database does not answer in time.
    pub async fn read_row(&self, call: &str) -> Option<SeenCall> {
        let row = tokio::time::timeout(ROW_TIMEOUT, self.row(call)).await.ok()?.ok()?;
        Some(row.unwrap_or_else(|| SeenCall { state: "absent".to_owned(), validated: None, exec_id: None }))
    }

    async fn row(&self, call: &str) -> Result<Option<SeenCall>, DbErr> {
        let rows = self.rows.get_or_try_init(|| Database::connect(self.options.clone())).await?;
        let statement = Statement::from_sql_and_values(
            rows.get_database_backend(),
            "SELECT state, validated, exec_id FROM tool_calls WHERE tool_call_id = $1",
            [call.into()],
        );
        SeenCall::find_by_statement(statement).one(rows).await
    }

    /// Writes a line durably.
    pub async fn write(&self, line: &Line<'_>) -> std::io::Result<()> {
        let (path, text) = (self.path.clone(), text(line)?);
        tokio::task::spawn_blocking(move || append(&open(&path)?, &text)).await?
    }

    /// Writes an `effect` or `refused` line, unless the file has one of the two for this key: then returns
    /// the existing line. The lock of the file lets only one process be the first.
    pub async fn write_once(&self, line: &Line<'_>) -> std::io::Result<Option<Value>> {
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

impl SettledLines {
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
    let mut text = serde_json::to_vec(&DatedLine { line, at: machine_micros(), pid: std::process::id() })?;
    text.push(b'\n');
    Ok(text)
}

/// Returns the time of the machine's clock, without the skew of a server, because the checks compare the lines of
/// many processes.
#[expect(clippy::disallowed_methods, reason = "the lines of many processes are compared by one clock")]
pub fn machine_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
