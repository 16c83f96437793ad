//! Connections: pools and timeouts.

use crate::config::Database;
use crate::event::reached::ApprovedCalls;
use crate::sql::pool::ConnectionPool;
use crate::sql::schema::Schema;
use crate::sql::transaction::{CONNECTION_SETTINGS, WRITE_TIMEOUT};
use crate::sql::tx::within_timeout;
use crate::{ProcessLock, Store, StoreError};
use holdpoint_core::clock::Clock;
use holdpoint_metrics::Metrics;
use log::LevelFilter;
use sea_orm::sqlx;
use sea_orm::sqlx::postgres::PgConnectOptions;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sea_orm::{DbBackend, DbErr, RuntimeErr};
use secrecy::ExposeSecret;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use url::Url;

/// How long work waits for a connection. A burst of chats is served late rather than refused.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// File mode of a new database file: only the owner may read and write.
const PRIVATE: u32 = 0o600;

impl Store {
    /// Connects, and creates the SQLite file if the file is missing. On Postgres the tables are in the schema.
    pub async fn connect(
        database: &Database,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, StoreError> {
        let Database { url, schema, max_connections, direct_url: _ } = database;
        let (url, max_connections) = (url.expose_secret(), *max_connections);
        make_private_file(url);
        let reserved = reserved(url, max_connections);
        let shared_sessions = keeps_no_statements(url);
        if is_postgres(url) {
            // Checked here, because a pool connects only when it is first used, and repeats some failures until its
            // timeout.
            within_timeout(check_sessions(url, shared_sessions)).await??;
        }
        let db = pool(url, max_connections - reserved, shared_sessions).await?;
        let urgent = match reserved {
            0 => db.clone(),
            some => pool(url, some, shared_sessions).await?,
        };
        let schema = Arc::new(Schema::new(db.backend(), schema));
        let writers = match db.backend() {
            DbBackend::Sqlite => 1,
            _ => Semaphore::MAX_PERMITS,
        };
        let writers = Arc::new(Semaphore::new(writers));
        let committed_signal = Arc::default();
        Ok(Self {
            db,
            urgent,
            schema,
            clock,
            metrics,
            writers,
            _sole: None,
            shared_sessions,
            committed_signal,
            approved: ApprovedCalls::default(),
            hook: None,
        })
    }

    /// Returns the file of a SQLite database, or `None` for a database in memory.
    pub fn file(url: &str) -> Option<PathBuf> {
        sqlite_file(url)
    }

    /// Adds the process lock, which keeps other processes from serving from the file while the store exists.
    pub fn held_by(self, sole: Option<ProcessLock>) -> Self {
        Self { _sole: sole, ..self }
    }
}

/// Returns the number of connections reserved for urgent work. On SQLite the writers queue, and a database in
/// memory exists on one connection only.
fn reserved(url: &str, max_connections: u32) -> u32 {
    if url.starts_with("sqlite:") || max_connections < 2 { 0 } else { (max_connections / 4).clamp(1, 4) }
}

async fn pool(url: &str, max_connections: u32, shared_sessions: bool) -> Result<ConnectionPool, StoreError> {
    let connected = async {
        if !url.starts_with("sqlite:") {
            // In a session that other clients use, the settings would apply to their statements.
            let settings = (!shared_sessions).then_some(CONNECTION_SETTINGS);
            let options = logged(postgres_options(url.parse()?));
            let pool = ConnectionPool::postgres(options, settings, max_connections, ACQUIRE_TIMEOUT);
            return pool.map_err(sqlx::Error::config);
        }
        let options = logged(url.parse::<SqliteConnectOptions>()?)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // NORMAL may lose acknowledged commits at a power failure.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(WRITE_TIMEOUT);
        // An open connection keeps SQLite's own lock on the file, which shows `ProcessLock` that this process
        // is there. A database in memory ends with its last connection.
        let pool = SqlitePoolOptions::new()
            .idle_timeout(None)
            .max_lifetime(None)
            .max_connections(max_connections)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A file does not disconnect.
            .test_before_acquire(false);
        Ok(ConnectionPool::Sqlite(pool.connect_with(options).await?))
    };
    Ok(connected.await.map_err(|error| DbErr::Conn(RuntimeErr::SqlxError(Arc::new(error))))?)
}

/// Logs the texts of statements, which have no values. The program logs nothing of sqlx below INFO.
fn logged<O: sqlx::ConnectOptions>(options: O) -> O {
    options.log_statements(LevelFilter::Trace).log_slow_statements(LevelFilter::Off, Duration::MAX)
}

pub(crate) fn postgres_options(postgres: PgConnectOptions) -> PgConnectOptions {
    // The schema has no floating-point columns, and pgbouncer refuses a session that sets
    // `extra_float_digits`.
    postgres.application_name("holdpoint").extra_float_digits(None)
}

fn is_postgres(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "postgres" | "postgresql"))
}

/// Whether the URL disables prepared statements through the option of sqlx, because a pooler gives each
/// transaction another session.
pub(crate) fn keeps_no_statements(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    url.query_pairs().any(|(option, value)| option == "statement-cache-capacity" && value == "0")
}

/// Connects, and refuses a pooler that gives one session to several clients in turn while statements stay
/// prepared, unless the URL declares the pooler. Otherwise clients would find, and run, each other's
/// statements under the same names.
async fn check_sessions(url: &str, shared: bool) -> Result<Result<(), StoreError>, DbErr> {
    // "Already prepared", and "no such statement".
    const IN_USE: [&str; 2] = ["42P05", "26000"];
    let connect = async || {
        let options: PgConnectOptions = url.parse()?;
        sqlx::ConnectOptions::connect(&postgres_options(options)).await
    };
    let check = async {
        let mut one = connect().await?;
        if shared {
            return Ok(Ok(()));
        }
        let mut other = connect().await?;
        // Both connections use the same names for these statements. Two rounds detect a pooler that rotates
        // sessions.
        for _ in 0..2 {
            for (connection, sql, own) in
                [(&mut one, "SELECT $1 || ' one'", "1 one"), (&mut other, "SELECT $1 || ' other'", "1 other")]
            {
                let read = sqlx::query_scalar::<_, String>(sql).bind("1").fetch_one(connection).await;
                match read {
                    Ok(read) if read == own => {}
                    Ok(_) => return Ok(Err(StoreError::SharedSessions)),
                    Err(sqlx::Error::Database(error))
                        if error.code().is_some_and(|code| IN_USE.contains(&code.as_ref())) =>
                    {
                        return Ok(Err(StoreError::SharedSessions));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(Ok(()))
    };
    check.await.map_err(|error| DbErr::Conn(RuntimeErr::SqlxError(Arc::new(error))))
}

/// Creates a missing SQLite file. SQLite would make the file readable for all users, and gives its side files
/// the mode of the database file.
pub(crate) fn make_private_file(url: &str) {
    if let Some(path) = sqlite_file(url) {
        // If the file cannot be created, SQLite reports why.
        let _there = private().create_new(true).open(path);
    }
}

pub(crate) fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true).mode(PRIVATE);
    options
}

/// Returns the file of a SQLite database, or `None` for a database in memory.
pub(crate) fn sqlite_file(url: &str) -> Option<PathBuf> {
    let in_memory = url.contains(":memory:") || url.contains("mode=memory");
    let options: SqliteConnectOptions =
        (url.starts_with("sqlite:") && !in_memory).then(|| url.parse().ok())??;
    Some(options.get_filename().to_owned())
}
