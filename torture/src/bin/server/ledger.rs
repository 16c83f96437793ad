//! The ledger: what really happened, written by the tools themselves, past the server.

use holdpoint::config::Config;
use sea_orm::{ConnectOptions, Database, DatabaseConnection, DbErr, FromQueryResult, Statement};
use secrecy::ExposeSecret;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::OnceCell;

/// How long a tool waits to see its row. It does its work all the same.
const LOOK: Duration = Duration::from_secs(2);

/// The file, and a connection of the tools' own to the rows.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    file: Arc<File>,
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
    #[serde(rename = "attempt")]
    pub(crate) exec_attempt: i32,
}

/// One line.
#[derive(Debug, Serialize)]
pub(crate) struct Line<'a> {
    /// `start`, `effect` or `end`.
    pub(crate) what: &'a str,
    pub(crate) call: &'a str,
    /// What a service downstream would know the call by.
    pub(crate) key: &'a str,
    pub(crate) tool: &'a str,
    /// SHA-256 of the inputs as RFC 8785 writes them.
    pub(crate) args_sha256: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) user: &'a str,
    /// At the start; absent if the row could not be read.
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    pub(crate) seen: Option<&'a Seen>,
    /// At the end: `ok` or `fail`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'a str>,
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
    /// Opens it, to be appended to by several processes at once.
    pub(crate) fn open(path: &Path, config: &Config) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).read(true).open(path)?;
        let mut options = ConnectOptions::new(config.database.url.expose_secret());
        options.max_connections(2).acquire_timeout(LOOK).sqlx_logging(false);
        Ok(Self { file: Arc::new(file), options, rows: Arc::default() })
    }

    /// How the row of a call stands, if that can be said in time.
    pub(crate) async fn look(&self, call: &str) -> Option<Seen> {
        tokio::time::timeout(LOOK, self.row(call)).await.ok()?.ok()?
    }

    async fn row(&self, call: &str) -> Result<Option<Seen>, DbErr> {
        let rows = self.rows.get_or_try_init(|| Database::connect(self.options.clone())).await?;
        let statement = Statement::from_sql_and_values(
            rows.get_database_backend(),
            "SELECT state, validated, exec_id, exec_attempt FROM tool_calls WHERE tool_call_id = $1",
            [call.into()],
        );
        Seen::find_by_statement(statement).one(rows).await
    }

    /// Writes a line, for good.
    pub(crate) async fn write(&self, line: &Line<'_>) -> std::io::Result<()> {
        let mut text = serde_json::to_vec(&Dated { line, at: machine_micros(), pid: std::process::id() })?;
        text.push(b'\n');
        let file = self.file.clone();
        tokio::task::spawn_blocking(move || {
            // One write, so that no line of another process is torn by it.
            file.as_ref().write_all(&text)?;
            file.sync_data()
        })
        .await?
    }
}

#[expect(clippy::disallowed_methods, reason = "whoever compares the lines of many processes wants one clock")]
fn machine_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
