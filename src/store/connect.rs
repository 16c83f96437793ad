//! Connecting: pools and time-outs.

use super::timed_tx::within_timeout;
use super::{ProcessLock, Store, StoreError, WRITE_TIMEOUT};
use crate::domain::clock::Clock;
#[cfg(feature = "torture")]
use crate::faults::{self, Bug};
use crate::metrics::Metrics;
use futures::FutureExt;
use sea_orm::sqlx;
use sea_orm::sqlx::postgres::PgConnectOptions;
use sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sea_orm::sqlx::{Database as Driver, Sqlite};
use sea_orm::{ConnectOptions, Database, DatabaseConnection, DbBackend, DbErr, RuntimeErr};
use sqlx_core::transaction::TransactionManager;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use url::Url;

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
        let shared_sessions = keeps_no_statements(url);
        if is_postgres(url) {
            // Before the pool, which says of whatever is wrong only that it waited in vain.
            within_timeout(check_sessions(url, shared_sessions)).await??;
        }
        let db = pool(url, max_connections - reserved, ACQUIRE_TIMEOUT).await?;
        let urgent = match reserved {
            0 => db.clone(),
            some => pool(url, some, URGENT_ACQUIRE_TIMEOUT).await?,
        };
        let writers = match db.get_database_backend() {
            DbBackend::Sqlite => 1,
            _ => Semaphore::MAX_PERMITS,
        };
        let writers = Arc::new(Semaphore::new(writers));
        let news = Arc::default();
        Ok(Self { db, urgent, clock, metrics, writers, _sole: None, shared_sessions, news })
    }

    /// The file of a SQLite database. One in memory has none.
    pub(crate) fn file(url: &str) -> Option<PathBuf> {
        sqlite_file(url)
    }

    /// The same, with what keeps other processes from serving from it for as long as the store is there.
    pub(crate) fn held_by(self, sole: Option<ProcessLock>) -> Self {
        Self { _sole: sole, ..self }
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
        .map_sqlx_sqlite_pool_opts(|pool| {
            // One that is open keeps SQLite's own lock on the file, by which `Sole` sees that this process is there; and
            // a database in memory ends with its last one.
            pool.idle_timeout(None)
                .max_lifetime(None)
                .after_release(|connection, _| forget_transaction(connection).boxed())
        })
        .map_sqlx_postgres_opts(postgres_options)
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

/// When a COMMIT fails for want of room SQLite ends the transaction, and sqlx goes on counting it: what is written over
/// that connection later would be acknowledged inside another, and never committed. So sqlx is given one to roll back.
/// False if that cannot be, and the connection has to be closed. They are not closed at once: with the last one goes
/// the file beside the database that they read by, and without room it cannot be made again.
async fn forget_transaction(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    // The rollback of what was dropped may be under way.
    sqlx::Connection::ping(connection).await?;
    if sqlx::Connection::is_in_transaction(connection) {
        sqlx::Executor::execute(&mut *connection, "BEGIN").await?;
        <Sqlite as Driver>::TransactionManager::rollback(connection).await?;
    }
    Ok(!sqlx::Connection::is_in_transaction(connection))
}

pub(super) fn postgres_options(postgres: PgConnectOptions) -> PgConnectOptions {
    // There is no fraction in the schema, and pgbouncer refuses a session that wants them rounded its own way.
    postgres.application_name("holdpoint").extra_float_digits(None)
}

fn is_postgres(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "postgres" | "postgresql"))
}

/// Whether the URL says that nothing stays prepared, because a pooler gives each transaction another session: by the
/// option that sqlx has for it.
pub(super) fn keeps_no_statements(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    url.query_pairs().any(|(option, value)| option == "statement-cache-capacity" && value == "0")
}

/// Connects, and unless it is known to be there refuses a pooler that gives one session to several clients in turn, while
/// statements stay prepared in sessions: each would find those of the others there under the names of its own, and run
/// them.
async fn check_sessions(url: &str, shared: bool) -> Result<Result<(), StoreError>, DbErr> {
    // Already prepared, and no such statement.
    const TAKEN: [&str; 2] = ["42P05", "26000"];
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
        // Both get the same name for these. Twice, for a pooler that has them go round.
        for _ in 0..2 {
            for (connection, sql, own) in
                [(&mut one, "SELECT $1 || ' one'", "1 one"), (&mut other, "SELECT $1 || ' other'", "1 other")]
            {
                let said = sqlx::query_scalar::<_, String>(sql).bind("1").fetch_one(connection).await;
                match said {
                    Ok(said) if said == own => {}
                    Ok(_) => return Ok(Err(StoreError::SharedSessions)),
                    Err(sqlx::Error::Database(error))
                        if error.code().is_some_and(|code| TAKEN.contains(&code.as_ref())) =>
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

/// Makes a SQLite file that is not there yet. SQLite would make it for everybody to read, and gives the files beside
/// it the mode that it has.
pub(super) fn make_private_file(url: &str) {
    if let Some(path) = sqlite_file(url) {
        // Where it cannot be made SQLite says why.
        let _there = private().create_new(true).open(path);
    }
}

pub(super) fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true).mode(PRIVATE);
    options
}

/// The file of a SQLite database. One in memory has none.
pub(super) fn sqlite_file(url: &str) -> Option<PathBuf> {
    let in_memory = url.contains(":memory:") || url.contains("mode=memory");
    let options: SqliteConnectOptions =
        (url.starts_with("sqlite:") && !in_memory).then(|| url.parse().ok())??;
    Some(options.get_filename().to_owned())
}
