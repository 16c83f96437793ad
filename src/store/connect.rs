//! Connecting: pools, time-outs, and who may serve from a SQLite file.

use super::{Store, StoreError, WRITE_TIMEOUT};
use crate::domain::clock::Clock;
#[cfg(feature = "torture")]
use crate::faults::{self, Bug};
use crate::metrics::Metrics;
use futures::FutureExt;
use sea_orm::sqlx;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sea_orm::{ConnectOptions, Database, DatabaseConnection, DbBackend};
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a request waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long what is urgent does, on its few: it is soon done, and worth waiting for.
const URGENT_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection that is given back may take to say that it is well.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Who may read a file that is made here: its owner.
const PRIVATE: u32 = 0o600;

impl Store {
    /// Connects, and creates a SQLite file that is not there yet.
    pub(crate) async fn connect(
        url: &str,
        max_connections: u32,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
    ) -> Result<Self, StoreError> {
        make_private_file(url);
        let reserved = reserved(url, max_connections);
        let db = pool(url, max_connections - reserved, ACQUIRE_TIMEOUT).await?;
        let urgent = match reserved {
            0 => db.clone(),
            some => pool(url, some, URGENT_ACQUIRE_TIMEOUT).await?,
        };
        let writers = match db.get_database_backend() {
            DbBackend::Sqlite => 1,
            _ => Semaphore::MAX_PERMITS,
        };
        Ok(Self { db, urgent, clock, metrics, writers: Arc::new(Semaphore::new(writers)), sole: None })
    }

    /// Whether there is a database to connect to, as far as a file tells.
    pub(crate) fn is_there(url: &str) -> bool {
        sqlite_file(url).is_none_or(|path| path.exists())
    }

    /// Keeps other processes from serving from the same SQLite file: two would each take what the other runs for
    /// what a dead one left behind. On Postgres there may be many.
    ///
    /// # Errors
    /// [`StoreError::InUse`] if another process does.
    pub(crate) fn serve_alone(mut self, url: &str) -> Result<Self, StoreError> {
        let Some(path) = lock_file(url) else { return Ok(self) };
        let failed = |why| StoreError::LockFile { path: path.display().to_string(), why };
        // A file beside the database: closing the database's own file would let go of SQLite's locks on it.
        let file = private().create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => self.sole = Some(Arc::new(file)),
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse),
            Err(TryLockError::Error(why)) => return Err(failed(why)),
        }
        Ok(self)
    }
}

/// How many of the connections are kept for what is urgent. On SQLite its writers queue, and a database in memory
/// is there on one connection alone.
fn reserved(url: &str, max_connections: u32) -> u32 {
    if url.starts_with("sqlite:") || max_connections < 2 { 0 } else { (max_connections / 4).clamp(1, 4) }
}

async fn pool(
    url: &str,
    max_connections: u32,
    acquire_timeout: Duration,
) -> Result<DatabaseConnection, StoreError> {
    let mut options = ConnectOptions::new(url);
    options
        .max_connections(max_connections)
        .acquire_timeout(acquire_timeout)
        .sqlx_logging(false)
        // On Postgres the hook below asks the server anyway, and a file does not go away.
        .test_before_acquire(false)
        .map_sqlx_sqlite_opts(|sqlite| {
            sqlite
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                // NORMAL may lose commits that were acknowledged when the power fails.
                .synchronous(SqliteSynchronous::Full)
                .foreign_keys(true)
                .busy_timeout(WRITE_TIMEOUT)
        })
        .map_sqlx_postgres_opts(|postgres| postgres.application_name("holdpoint"))
        .map_sqlx_postgres_pool_opts(|pool| {
            // The pool itself would wait for ever for a connection that swallows everything, and with it for a
            // place of its own.
            pool.after_release(|connection, _| {
                async move {
                    let well = tokio::time::timeout(RELEASE_TIMEOUT, sqlx::Connection::ping(connection));
                    well.await.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map(|()| true)
                }
                .boxed()
            })
        })
        .map_sqlx_postgres_before_acquire(|connection, _| {
            // A `begin` that was dropped half-way leaves its session inside a transaction nobody knows of, and
            // what is written there later is never committed (sqlx issue 4385). On a clean session this is a
            // round trip and nothing more; a bare ROLLBACK would be a warning in the server's log each time.
            async move {
                #[cfg(feature = "torture")]
                if faults::has(Bug::LeakedTransaction) {
                    return Ok(true);
                }
                sqlx::Executor::execute(connection, "BEGIN; ROLLBACK").await?;
                Ok(true)
            }
            .boxed()
        });
    Ok(Database::connect(options).await?)
}

/// Makes a SQLite file that is not there yet. SQLite would make it for everybody to read, and gives the files beside
/// it the mode that it has.
fn make_private_file(url: &str) {
    if let Some(path) = sqlite_file(url) {
        // Where it cannot be made SQLite says why.
        let _there = private().create_new(true).open(path);
    }
}

fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true).mode(PRIVATE);
    options
}

/// The file of a SQLite database. One in memory has none.
fn sqlite_file(url: &str) -> Option<PathBuf> {
    let in_memory = url.contains(":memory:") || url.contains("mode=memory");
    let options: SqliteConnectOptions =
        (url.starts_with("sqlite:") && !in_memory).then(|| url.parse().ok())??;
    Some(options.get_filename().to_owned())
}

fn lock_file(url: &str) -> Option<PathBuf> {
    // One that has several names has one lock.
    let database = sqlite_file(url)?.canonicalize().ok()?;
    let mut path = database.into_os_string();
    path.push(".lock");
    Some(path.into())
}
