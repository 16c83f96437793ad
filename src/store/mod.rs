//! The store: the only place with SQL.
//!
//! [`Store::read`] gives one consistent view, [`Store::write`] one transaction. Whatever moves a state is a
//! method of [`Write`]: one guarded statement that names the state it moves from, and its event row. No rows
//! moved means that somebody else was faster; that is a value, not an error. What a caller may see is in the
//! statement too: every read on behalf of somebody takes the [`Principal`](crate::domain::Principal).

mod calls;
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
#[cfg(feature = "torture")]
mod planted;
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

pub(crate) use calls::{CancelOutcome, Which};
use decisions::NewDecision;
pub(crate) use decisions::Vote;
pub(crate) use drafts::OpenStep;
pub(crate) use events::{EventFilter, EventReader, EventsRead, Range};
pub(crate) use executions::{Again, Claimed};
pub(crate) use fence::FencedThread;
pub(crate) use grants::{Granted, NewGrant};
pub(crate) use inbox::{CallScope, Listing, Visibility, VisibleCall};
pub(crate) use listing::ListedCall;
pub(crate) use notify::{Notification, Notifications};
pub(crate) use numbering::Left;
pub(crate) use paging::PageSize;
pub(crate) use process_lock::ProcessLock;
pub(crate) use quorum::Counted;
pub(crate) use runs::{NewRun, Question};
pub(crate) use steps::{NewCall, StepOpening, StepResult};
pub(crate) use sub_agents::{AgentLimits, Delegated, DelegatedCall, EndedChild};
pub(crate) use sweep::{Doubtful, Due, DueCall, Recovered, Swept};
pub(crate) use threads::{Extent, NewThread, Page, Thread};
pub(crate) use transcript::{Seal, SealKind, Sent, Transcript};
pub(crate) use turn_progress::{ProgressMark, StoredStep, TailedTurn};
pub(crate) use turns::{Lease, TurnEnd};

use crate::domain::clock::{Clock, Timestamp};
#[cfg(feature = "torture")]
use crate::faults::{self, Bug, CommitName, Passed};
use crate::metrics::Metrics;
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

/// Has Postgres answer COMMIT once the transaction is on its disk, whatever the role or the database is set to: a decision
/// that was acknowledged and is lost in a crash would be taken, and the call run, once more. `remote_apply` waits for
/// more than that, and stays.
macro_rules! durable_commit {
    () => {
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit')
            WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
    };
}

/// The lock under which replicas that start together migrate one after the other, however long that takes.
const MIGRATION_LOCK: &str = concat!("SELECT pg_advisory_xact_lock(7233001), ", durable_commit!());

/// Begins a transaction that writes on Postgres: no statement may take longer than 5 s, waiting for locks included,
/// and a process that is paused holds its locks for 10 s at most. Set for the transaction alone, so that it holds
/// behind a pooler too. Then the time.
const BEGIN_WRITE: &str = concat!(
    "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT AS micros,
    set_config('statement_timeout', '5000', true),
    set_config('idle_in_transaction_session_timeout', '10000', true), ",
    durable_commit!()
);

/// Begins a view on Postgres. No statement of it may take longer than 5 s either: otherwise the server would still run one
/// that this process has given up.
const BEGIN_READ: &str =
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = 5000";

/// Begins a transaction in a session that others had before. sqlx gives every statement a name there, even if it keeps
/// none, and counts from one in each connection: what the others left behind has the same names.
const BEGIN_SHARED_READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
    SET LOCAL statement_timeout = 5000; DEALLOCATE ALL";
const BEGIN_SHARED_WRITE: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; DEALLOCATE ALL";

/// What has to be on in Postgres, and is not.
const UNSAFE_SETTINGS: &str = "SELECT name, setting FROM pg_settings
    WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name";

/// How long a writer waits for its turn.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A failure of the database or of what stands in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The database did not do it, or did not say whether it did.
    #[error(transparent)]
    Database(#[from] DbErr),
    /// Another process serves from the same SQLite file, and only one may.
    #[error("another process serves from this database; SQLite takes one, use Postgres for more")]
    InUse,
    /// Another process has the SQLite file open, and the file that would say whether it serves is gone.
    #[error(
        "another process has this database open, and may serve from it: its lock file {path} was deleted or replaced; \
         end that process first"
    )]
    MaybeInUse {
        /// The lock file.
        path: String,
    },
    /// A pooler gives a session to several clients in turn, and this one would keep statements in it.
    #[error(
        "a pooler gives one session of this database to several clients in turn, as pgbouncer does in transaction \
         mode; say so with statement-cache-capacity=0 in the URL, or have it keep prepared statements apart \
         (pgbouncer 1.21 and later: max_prepared_statements)"
    )]
    SharedSessions,
    /// The file that says who serves could not be opened.
    #[error("the lock file {path}: {why}")]
    LockFile {
        /// Where it is.
        path: String,
        /// What the system says.
        why: std::io::Error,
    },
    /// A row that the checks of the schema forbid.
    #[error("inconsistent row in {table}: {what}")]
    Inconsistent {
        /// Its table.
        table: &'static str,
        /// What is wrong with it.
        what: String,
    },
}

impl StoreError {
    /// Whether the database could not be reached, or broke off, or has no room: what became of the request is
    /// unknown, and asking again is safe.
    pub(crate) fn is_unavailable(&self) -> bool {
        match self {
            // However connecting fails: a server that ends answers with anything.
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
    // Postgres: connection, transaction state (timed out, read-only), rollback, resources, operator (appendix A of
    // its manual, by class).
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
    /// Connections for what must not wait behind chats. Where writers queue anyway, the same.
    urgent: DatabaseConnection,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    /// SQLite has one writer at a time, and lets the others look again now and then; here they queue.
    writers: Arc<Semaphore>,
    /// Held as long as the server is there: no other process serves from this SQLite file.
    _sole: Option<ProcessLock>,
    /// A pooler gives each transaction a session that others had before.
    shared_sessions: bool,
    /// Told when events are committed.
    news: Arc<Notify>,
}

/// What a renewal found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewed {
    /// The lease goes on.
    Held,
    /// It goes on, and somebody asked for an end.
    CancelRequested,
    /// It was taken for dead.
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

/// One transaction. Dropped without [`commit`](Self::commit), nothing of it happened.
pub(crate) struct Write {
    read: Read,
    _turn: OwnedSemaphorePermit,
    clock: Arc<dyn Clock>,
    /// The time of everything that this transaction writes.
    now: Timestamp,
    metrics: Metrics,
    /// The states that calls reach in it; reported after the commit.
    reached: Mutex<Vec<Reached>>,
    /// Whether it has events, and who is told then.
    has_events: AtomicBool,
    news: Arc<Notify>,
    /// What the torture run calls its commit.
    #[cfg(feature = "torture")]
    name: CommitName,
}

impl Deref for Write {
    type Target = Read;

    fn deref(&self) -> &Read {
        &self.read
    }
}

impl Store {
    /// Brings the schema up to date: everything in one transaction that holds a lock. Where it is, nothing is written,
    /// and a role that may not make tables will do.
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

    /// Whether the schema is the one of this version.
    pub(crate) async fn is_up_to_date(&self) -> Result<bool, StoreError> {
        let tx = self.begin_over(&self.db, Mode::Read).await?;
        Ok(Migrator::get_pending_migrations_read_only(&tx).await?.is_empty())
    }

    /// The settings of the database's server, each with its value, by which a crash may lose what was committed. No
    /// session can change them.
    pub(crate) async fn unsafe_settings(&self) -> Result<Vec<(String, String)>, StoreError> {
        if self.db.get_database_backend() != DbBackend::Postgres {
            return Ok(Vec::new());
        }
        let statement = Statement::from_string(DbBackend::Postgres, UNSAFE_SETTINGS);
        let rows = self.read().await?.tx.query_all_raw(statement).await?;
        let setting = |row: &QueryResult| Ok((row.try_get("", "name")?, row.try_get("", "setting")?));
        rows.iter().map(setting).collect()
    }

    /// Whether the database answers, for chats and for what is urgent.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        within_timeout(self.db.ping()).await?;
        within_timeout(self.urgent.ping()).await?;
        Ok(())
    }

    /// Whether only this process can have written to the database: what runs in it runs here.
    pub(crate) fn has_one_writer(&self) -> bool {
        self.db.get_database_backend() == DbBackend::Sqlite
    }

    /// Begins a view.
    pub(crate) async fn read(&self) -> Result<Read, StoreError> {
        self.read_over(Pool::Chat).await
    }

    /// Begins a view that waits for no chat: for what became of a decision.
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

    /// Begins a transaction that waits for no chat: for decisions, outcomes, and saying that work is alive.
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
        #[cfg(feature = "torture")]
        let tx = if faults::has(Bug::LeakedTransaction) && matches!(pool, Pool::Urgent) {
            drop(tx);
            TimedTx(planted::Connection::bare(&self.urgent, self.clock.chance()).await?)
        } else {
            tx
        };
        let now = match tx.get_database_backend() {
            DbBackend::Postgres => begin_write(&tx).await?,
            _ => self.clock.now(),
        };
        Ok(Write {
            read: Read { tx },
            _turn: turn,
            clock: self.clock.clone(),
            now,
            metrics: self.metrics.clone(),
            reached: Mutex::default(),
            has_events: AtomicBool::new(false),
            news: self.news.clone(),
            #[cfg(feature = "torture")]
            name: CommitName::default(),
        })
    }

    /// A transaction, for work that has waited since then.
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
        #[cfg(feature = "torture")]
        let begun = begun.map(planted::Connection::Whole);
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

/// Which connections.
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
            // A deferred transaction that goes from reading to writing fails at once when another wrote.
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
    /// Makes all of it durable. Only what comes after `Ok` may tell anybody.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        let has_events = self.has_events.load(Ordering::Relaxed);
        if has_events && self.read.tx.get_database_backend() == DbBackend::Sqlite {
            self.number_own_events().await?;
        }
        #[cfg(feature = "torture")]
        let point = self.name.into_point();
        #[cfg(feature = "torture")]
        if point.before().await == Passed::Failed {
            return Err(planted::cut_off());
        }
        self.read.tx.commit().await?;
        #[cfg(feature = "torture")]
        if point.after().await == Passed::Failed {
            return Err(planted::cut_off());
        }
        for reached in self.reached.into_inner() {
            reached.report(&self.metrics);
        }
        if has_events {
            self.news.notify_one();
        }
        Ok(())
    }

    /// The time of this transaction: the database's on Postgres, the process's on SQLite.
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
        what: "the database does not know the time".to_owned(),
    })
}
