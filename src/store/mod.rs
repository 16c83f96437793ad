//! The store: the only module with SQL.
//!
//! [`Store::read`] begins a consistent view, [`Store::write`] a transaction. Every change of a state is a
//! method of [`Write`]: one guarded statement that names the old state, and its event row. If the statement
//! changes no row, another transaction won the race. The method returns this as a value, not as an error. The
//! statements also check visibility: every read on behalf of a user takes the
//! [`Principal`](crate::domain::Principal).

mod calls;
mod commit_hook;
mod connect;
mod decisions;
mod drafts;
mod entity;
mod events;
mod executions;
mod fence;
mod grants;
mod inbox;
mod listing;
mod notify;
mod numbering;
mod paging;
mod parts;
mod process_lock;
mod purge;
mod quorum;
mod reached;
mod resumable_runs;
mod rows;
mod runs;
mod sessions;
mod steps;
mod sub_agents;
mod sweep;
mod threads;
mod tickets;
mod timed_tx;
mod transcript;
mod transitions;
mod turn_progress;
mod turns;
mod words;

pub(crate) use calls::{CancelOutcome, Which};
pub use commit_hook::{Commit, CommitFailed, CommitHook};
use decisions::NewDecision;
pub(crate) use decisions::Vote;
pub(crate) use drafts::OpenStep;
pub(crate) use events::{EventFilter, EventReader, EventsRead, Range};
pub(crate) use executions::{Again, Claimed, ResolvedBy};
pub(crate) use fence::FencedThread;
pub(crate) use grants::{Granted, NewGrant};
pub(crate) use inbox::{CallScope, Listing, Visibility, VisibleCall};
pub(crate) use listing::ListedCall;
pub(crate) use notify::{Notification, Notifications};
pub(crate) use numbering::Left;
pub(crate) use paging::PageSize;
pub(crate) use process_lock::ProcessLock;
pub(crate) use purge::Erased;
pub(crate) use quorum::Counted;
pub(crate) use runs::{NewRun, Question};
pub(crate) use steps::{NewCall, StepOpening, StepResult};
pub(crate) use sub_agents::{AgentLimits, Delegated, DelegatedCall, EndedChild};
pub(crate) use sweep::{Doubtful, Due, DueCall, Recovered, Swept};
pub(crate) use threads::{Extent, NewThread, Page, Thread, ThreadActivity};
pub(crate) use transcript::{Seal, Sent, Transcript};
pub(crate) use turn_progress::{ProgressMark, StoredStep, TailedTurn};
pub(crate) use turns::{Lease, TurnEnd};
pub(crate) use words::SealKind;

use crate::domain::clock::{Clock, Timestamp};
use crate::metrics::Metrics;
use commit_hook::HookedCommit;
use holdpoint_migrations::{Migrator, MigratorTrait};
use parking_lot::Mutex;
use reached::Reached;
use sea_orm::sqlx;
use sea_orm::{
    ConnAcquireErr, ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr,
    FromQueryResult, IsolationLevel, QueryResult, RuntimeErr, SqliteTransactionMode, Statement,
    TransactionOptions, TransactionTrait,
};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use timed_tx::{TimedTx, within_timeout};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Makes Postgres acknowledge COMMIT only after the transaction is on its disk, whatever the settings of the
/// role or the database are. Otherwise a crash could lose an acknowledged decision, and the call could be
/// decided, and run, a second time. The stricter `remote_apply` stays.
macro_rules! durable_commit {
    () => {
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit')
            WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
    };
}

/// The lock under which replicas that start together migrate one after the other. No timeout limits the wait.
const MIGRATION_LOCK: &str = concat!("SELECT pg_advisory_xact_lock(7233001), ", durable_commit!());

/// Begins a writing transaction on Postgres, and returns its time. A statement takes at most 5 s, waits for
/// locks included. A paused process holds its locks for at most 10 s. The settings are local to the
/// transaction, so that they also apply through a pooler.
const BEGIN_WRITE: &str = concat!(
    "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT AS micros,
    set_config('statement_timeout', '5000', true),
    set_config('idle_in_transaction_session_timeout', '10000', true), ",
    durable_commit!()
);

/// Begins a view on Postgres. Its statements take at most 5 s too. Otherwise the server would still run a
/// statement that this process has given up.
const BEGIN_READ: &str =
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = 5000";

/// Begins a transaction in a session that other clients used before. sqlx names every statement there, even
/// if it keeps none, and each connection counts from one. The statements of other clients in the session have
/// the same names.
const BEGIN_SHARED_READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
    SET LOCAL statement_timeout = 5000; DEALLOCATE ALL";
const BEGIN_SHARED_WRITE: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; DEALLOCATE ALL";

/// Finds the required settings of Postgres that are off.
const UNSAFE_SETTINGS: &str = "SELECT name, setting FROM pg_settings
    WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name";

/// How long a writer waits for its turn.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A failure of the database, or an invalid row in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The database refused the request, or did not report its outcome.
    #[error(transparent)]
    Database(#[from] DbErr),
    /// Another process serves from the same SQLite file. Only one process may.
    #[error("another process serves from this database; SQLite takes one, use Postgres for more")]
    InUse,
    /// Another process has the SQLite file open, and the lock file that would show whether that process
    /// serves is gone.
    #[error(
        "another process has this database open, and may serve from it: its lock file {path} was deleted or replaced; \
         end that process first"
    )]
    MaybeInUse {
        /// The lock file.
        path: String,
    },
    /// A pooler gives one session to several clients in turn, and this client would keep prepared statements
    /// in it.
    #[error(
        "a pooler gives one session of this database to several clients in turn, as pgbouncer does in transaction \
         mode; set statement-cache-capacity=0 in the URL, or let the pooler keep prepared statements apart \
         (pgbouncer 1.21 and later: max_prepared_statements)"
    )]
    SharedSessions,
    /// The lock file could not be opened.
    #[error("the lock file {path}: {why}")]
    LockFile {
        /// The path of the lock file.
        path: String,
        /// The error of the operating system.
        why: std::io::Error,
    },
    /// A row that the checks of the schema forbid.
    #[error("inconsistent row in {table}: {what}")]
    Inconsistent {
        /// The table of the row.
        table: &'static str,
        /// The error in the row.
        what: String,
    },
}

impl StoreError {
    /// Whether the database was unreachable, broke off or has no room. The outcome of the request is unknown,
    /// and a retry is safe.
    pub(crate) fn is_unavailable(&self) -> bool {
        match self {
            // Any failure to connect: a server that shuts down answers with arbitrary errors.
            Self::Database(DbErr::ConnectionAcquire(_) | DbErr::Conn(_)) => true,
            Self::Database(
                DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error)),
            ) => is_unavailable(error),
            Self::Database(_)
            | Self::InUse
            | Self::MaybeInUse { .. }
            | Self::SharedSessions
            | Self::LockFile { .. }
            | Self::Inconsistent { .. } => false,
        }
    }
}

fn is_unavailable(error: &sqlx::Error) -> bool {
    // Postgres: connection, transaction state (timed out, read-only), rollback, resources, operator (appendix
    // A of its manual, by class).
    const CLASSES: [&str; 5] = ["08", "25", "40", "53", "57"];
    // SQLite: BUSY, LOCKED, READONLY, IOERR, FULL, CANTOPEN (the low byte of its extended codes).
    const CODES: [u32; 6] = [5, 6, 8, 10, 13, 14];
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| match code.parse::<u32>() {
            Ok(number) if code.len() < 5 => CODES.contains(&(number & 0xff)),
            _ => CLASSES.iter().any(|class| code.starts_with(class)),
        }),
        _ => false,
    }
}

/// The database of one server.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    db: DatabaseConnection,
    /// Connections for urgent work, which must not wait for chats. The same pool where writers queue anyway.
    urgent: DatabaseConnection,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    /// SQLite has one writer at a time, and other writers only poll for the lock. Here they queue instead.
    writers: Arc<Semaphore>,
    /// Held for the lifetime of the store: no other process serves from this SQLite file.
    _sole: Option<ProcessLock>,
    /// Whether a pooler gives each transaction a session that other clients used before.
    shared_sessions: bool,
    /// Notified when a transaction with events is committed.
    news: Arc<Notify>,
    hook: Option<Arc<dyn CommitHook>>,
}

/// The result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewed {
    /// The lease is renewed.
    Held,
    /// The lease is renewed, and a cancel is requested.
    CancelRequested,
    /// The lease was lost before.
    Lost,
}

impl Renewed {
    fn of(held: bool, cancel_requested: bool) -> Self {
        match (held, cancel_requested) {
            (false, _) => Self::Lost,
            (true, false) => Self::Held,
            (true, true) => Self::CancelRequested,
        }
    }
}

/// One consistent view of the rows.
pub(crate) struct Read {
    tx: TimedTx,
}

/// One transaction. A drop without [`commit`](Self::commit) rolls it back.
pub(crate) struct Write {
    read: Read,
    turn: OwnedSemaphorePermit,
    clock: Arc<dyn Clock>,
    /// The time of everything that this transaction writes.
    now: Timestamp,
    metrics: Metrics,
    /// The states that calls reach in this transaction. They are reported after the commit.
    reached: Mutex<Vec<Reached>>,
    /// Whether the transaction has events. The commit then notifies `news`.
    has_events: AtomicBool,
    news: Arc<Notify>,
    hooked: HookedCommit,
}

impl Deref for Write {
    type Target = Read;

    fn deref(&self) -> &Read {
        &self.read
    }
}

impl Store {
    /// Migrates the schema in one transaction that holds a lock. If the schema is current, the transaction
    /// writes nothing, and the role needs no right to create tables.
    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let tx = self.begin_over(&self.db, Mode::Write).await?;
        if tx.get_database_backend() == DbBackend::Postgres {
            tx.execute_unprepared(MIGRATION_LOCK).await?;
        }
        if !Migrator::get_pending_migrations_read_only(&tx).await?.is_empty() {
            Migrator::up(&tx, None).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Whether the schema is that of this version.
    pub(crate) async fn is_up_to_date(&self) -> Result<bool, StoreError> {
        let tx = self.begin_over(&self.db, Mode::Read).await?;
        Ok(Migrator::get_pending_migrations_read_only(&tx).await?.is_empty())
    }

    /// Returns the settings of the database server, with their values, under which a crash may lose committed
    /// data. A session cannot change these settings.
    pub(crate) async fn unsafe_settings(&self) -> Result<Vec<(String, String)>, StoreError> {
        if self.db.get_database_backend() != DbBackend::Postgres {
            return Ok(Vec::new());
        }
        let statement = Statement::from_string(DbBackend::Postgres, UNSAFE_SETTINGS);
        let rows = self.read().await?.tx.query_all_raw(statement).await?;
        let setting = |row: &QueryResult| Ok((row.try_get("", "name")?, row.try_get("", "setting")?));
        rows.iter().map(setting).collect()
    }

    /// Checks that the database answers on both pools.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        within_timeout(self.db.ping()).await?;
        within_timeout(self.urgent.ping()).await?;
        Ok(())
    }

    /// Whether only this process can write to the database, so that every execution in it runs here.
    pub(crate) fn has_one_writer(&self) -> bool {
        self.db.get_database_backend() == DbBackend::Sqlite
    }

    /// Begins a view.
    pub(crate) async fn read(&self) -> Result<Read, StoreError> {
        self.read_over(Pool::Chat).await
    }

    /// Begins a view that does not wait for chats, for the outcome of a decision.
    pub(crate) async fn urgent_read(&self) -> Result<Read, StoreError> {
        self.read_over(Pool::Urgent).await
    }

    async fn read_over(&self, pool: Pool) -> Result<Read, StoreError> {
        Ok(Read { tx: self.begin(pool, Mode::Read, Instant::now()).await? })
    }

    /// Begins a transaction.
    pub(crate) async fn write(&self) -> Result<Write, StoreError> {
        self.write_over(Pool::Chat).await
    }

    /// Begins a transaction that does not wait for chats: for decisions, outcomes and renewals of leases.
    pub(crate) async fn urgent_write(&self) -> Result<Write, StoreError> {
        self.write_over(Pool::Urgent).await
    }

    async fn write_over(&self, pool: Pool) -> Result<Write, StoreError> {
        let since = Instant::now();
        let turn = tokio::time::timeout(WRITE_TIMEOUT, self.writers.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            self.metrics.connection_timed_out(pool.as_str());
            return Err(DbErr::ConnectionAcquire(ConnAcquireErr::Timeout).into());
        };
        let tx = self.begin(pool, Mode::Write, since).await?;
        let now = match tx.get_database_backend() {
            DbBackend::Postgres => begin_write(&tx).await?,
            _ => self.clock.now(),
        };
        Ok(Write {
            read: Read { tx },
            turn,
            clock: self.clock.clone(),
            now,
            metrics: self.metrics.clone(),
            reached: Mutex::default(),
            has_events: AtomicBool::new(false),
            news: self.news.clone(),
            hooked: HookedCommit::new(self.hook.clone()),
        })
    }

    /// Begins a transaction for work that has waited since `since`.
    async fn begin(&self, pool: Pool, mode: Mode, since: Instant) -> Result<TimedTx, StoreError> {
        let db = match pool {
            Pool::Chat => &self.db,
            Pool::Urgent => &self.urgent,
        };
        let begun = within_timeout(self.begin_over(db, mode)).await;
        match &begun {
            Ok(_) => self.metrics.connection_waited(pool.as_str(), since.elapsed()),
            Err(DbErr::ConnectionAcquire(_)) => self.metrics.connection_timed_out(pool.as_str()),
            Err(_) => {}
        }
        Ok(TimedTx(begun?))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that begins transactions, with their mode")]
    async fn begin_over(&self, db: &DatabaseConnection, mode: Mode) -> Result<DatabaseTransaction, DbErr> {
        let is_postgres = db.get_database_backend() == DbBackend::Postgres;
        if self.shared_sessions || (is_postgres && matches!(mode, Mode::Read)) {
            let tx = db.begin().await?;
            match (mode, self.shared_sessions) {
                (Mode::Read, false) => tx.execute_unprepared(BEGIN_READ).await?,
                (Mode::Read, true) => tx.execute_unprepared(BEGIN_SHARED_READ).await?,
                (Mode::Write, _) => tx.execute_unprepared(BEGIN_SHARED_WRITE).await?,
            };
            return Ok(tx);
        }
        db.begin_with_options(mode.options(db.get_database_backend())).await
    }
}

/// A pool of connections.
#[derive(Clone, Copy)]
enum Pool {
    Chat,
    Urgent,
}

impl Pool {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Urgent => "urgent",
        }
    }
}

#[derive(Clone, Copy)]
enum Mode {
    Read,
    Write,
}

impl Mode {
    fn options(self, backend: DbBackend) -> TransactionOptions {
        match (backend, self) {
            (_, Self::Read) => TransactionOptions {
                sqlite_transaction_mode: Some(SqliteTransactionMode::Deferred),
                ..Default::default()
            },
            // A deferred transaction that upgrades from read to write fails immediately if another
            // transaction wrote.
            (DbBackend::Sqlite, Self::Write) => TransactionOptions {
                sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
                ..Default::default()
            },
            (_, Self::Write) => TransactionOptions {
                isolation_level: Some(IsolationLevel::ReadCommitted),
                ..Default::default()
            },
        }
    }
}

impl Write {
    /// Commits the transaction. Only code after `Ok` may emit its results.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        let has_events = self.has_events.load(Ordering::Relaxed);
        if has_events && self.read.tx.get_database_backend() == DbBackend::Sqlite {
            self.number_own_events().await?;
        }
        self.hooked.before().await?;
        self.read.tx.commit().await?;
        // Other writers go on while the hook waits.
        drop(self.turn);
        self.hooked.after().await?;
        for reached in self.reached.into_inner() {
            reached.report(&self.metrics);
        }
        if has_events {
            self.news.notify_one();
        }
        Ok(())
    }

    /// Returns the time of this transaction: the database's clock on Postgres, the process's clock on SQLite.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }
}

#[derive(FromQueryResult)]
struct DatabaseNow {
    micros: i64,
}

async fn begin_write(tx: &TimedTx) -> Result<Timestamp, StoreError> {
    let statement = Statement::from_string(DbBackend::Postgres, BEGIN_WRITE);
    let row = DatabaseNow::find_by_statement(statement).one(tx).await?;
    row.map(|row| Timestamp::from_micros(row.micros)).ok_or_else(|| StoreError::Inconsistent {
        table: "pg_catalog",
        what: "the database returned no time".to_owned(),
    })
}
