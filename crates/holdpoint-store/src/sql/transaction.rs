//! Views and transactions: begin, lock, commit.

use crate::event::events::Events;
use crate::event::reached::{ApprovedCalls, ReachedState};
use crate::sql::batch::Change;
use crate::sql::commit_hook::HookedCommit;
use crate::sql::pool::ConnectionPool;
use crate::sql::schema::Schema;
use crate::sql::tx::Tx;
use crate::thread::extents::Additions;
use crate::{CommitHook, ProcessLock, StoreError};
use holdpoint_core::clock::{Clock, Timestamp};
use holdpoint_metrics::Metrics;
use holdpoint_migrations::{Migrator, MigratorTrait};
use parking_lot::Mutex;
use sea_orm::{
    ActiveModelTrait, ConnAcquireErr, ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, EntityTrait,
    QueryResult, SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait, UpdateMany,
};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};

/// Makes Postgres acknowledge COMMIT only after the transaction is on its disk, whatever the settings of the
/// role or the database are. Otherwise a crash could lose an acknowledged decision, and the call could be
/// decided, and run, a second time. The stricter `remote_apply` stays.
macro_rules! durable_commit {
    () => {
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit')
            WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)"
    };
}

/// Ends the time limit of statements for a migration.
const MIGRATION_TIMEOUT: &str = "SET LOCAL statement_timeout = 0";
/// The lock under which replicas that start together migrate one after the other.
const MIGRATION_LOCK: &str = concat!("SELECT pg_advisory_xact_lock(7233001), ", durable_commit!());

/// The time limit of a statement, in milliseconds. Without it the server would still run a statement that
/// this process has given up.
macro_rules! statement_timeout {
    () => {
        "5000"
    };
}

/// The settings of a connection for statements without a transaction.
pub(crate) const CONNECTION_SETTINGS: &str = concat!("SET statement_timeout = ", statement_timeout!());

/// Selects the time on Postgres.
macro_rules! select_time {
    () => {
        "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT AS micros"
    };
}

/// Selects the time of a writing transaction on Postgres, and sets its limits. A statement takes at most 5 s,
/// waits for locks included. A paused process holds its locks for at most 10 s. The settings are local to the
/// transaction, so that they also apply through a pooler.
macro_rules! write_settings {
    () => {
        concat!(
            select_time!(),
            ", set_config('statement_timeout', '",
            statement_timeout!(),
            "', true), set_config('idle_in_transaction_session_timeout', '10000', true), ",
            durable_commit!()
        )
    };
}

const BEGIN_WRITE: &str = concat!("BEGIN ISOLATION LEVEL READ COMMITTED; ", write_settings!());
const BEGIN_READ: &str = concat!(
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = ",
    statement_timeout!()
);
const BEGIN_TIMED_READ: &str = concat!(
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = ",
    statement_timeout!(),
    "; ",
    select_time!()
);

/// Begins a transaction in a session that other clients used before. sqlx names every statement there, even
/// if it keeps none, and each connection counts from one. The statements of other clients in the session have
/// the same names.
const BEGIN_SHARED_WRITE: &str =
    concat!("BEGIN ISOLATION LEVEL READ COMMITTED; DEALLOCATE ALL; ", write_settings!());
const BEGIN_SHARED_READ: &str = concat!(
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; DEALLOCATE ALL; SET LOCAL statement_timeout = ",
    statement_timeout!()
);

const BEGIN_SHARED_TIMED_READ: &str = concat!(
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; DEALLOCATE ALL; SET LOCAL statement_timeout = ",
    statement_timeout!(),
    "; ",
    select_time!()
);

/// A deferred transaction that upgrades from read to write fails immediately if another transaction wrote.
const BEGIN_WRITE_SQLITE: &str = "BEGIN IMMEDIATE";
const BEGIN_READ_SQLITE: &str = "BEGIN DEFERRED";

/// Finds the required settings of Postgres that are off.
const UNSAFE_SETTINGS: &str = "SELECT name, setting FROM pg_settings
    WHERE name IN ('fsync', 'full_page_writes') AND setting = 'off' ORDER BY name";

/// How long a writer waits for its turn.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The database of one server.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) db: ConnectionPool,
    /// Connections for urgent work, which must not wait for chats. The same pool where writers queue anyway.
    pub(crate) urgent: ConnectionPool,
    pub(crate) schema: Arc<Schema>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    /// SQLite has one writer at a time, and other writers only poll for the lock. Here they queue instead.
    pub(crate) writers: Arc<Semaphore>,
    /// Held for the lifetime of the store: no other process serves from this SQLite file.
    pub(crate) _sole: Option<ProcessLock>,
    /// Whether a pooler gives each transaction a session that other clients used before.
    pub(crate) shared_sessions: bool,
    /// Notified when a transaction with events is committed.
    pub(crate) committed_signal: Arc<Notify>,
    /// Broadcasts the tools of newly approved calls.
    pub(crate) approved: ApprovedCalls,
    pub(crate) hook: Option<Arc<dyn CommitHook>>,
}

/// The result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewalOutcome {
    /// The lease is renewed.
    Held,
    /// The lease is renewed, and a cancel is requested.
    CancelRequested,
    /// The lease was lost before.
    Lost,
}

/// One consistent view of the rows.
pub struct Read {
    pub(crate) tx: Tx,
}

/// One consistent view with the time of its beginning, for deadlines and leases.
pub struct TimedRead {
    read: Read,
    /// The time by the clock of [`Write::now`].
    pub(crate) now: Timestamp,
}

/// One transaction. A drop without [`commit`](Self::commit) rolls it back.
pub struct Write {
    read: Read,
    pub(crate) clock: Arc<dyn Clock>,
    /// The time of everything that this transaction writes.
    pub(crate) now: Timestamp,
    metrics: Metrics,
    /// The states that calls reach in this transaction. They are reported after the commit.
    pub(crate) reached: Mutex<Vec<ReachedState>>,
    /// The events of this transaction. The commit inserts those that wait.
    pub(crate) events: Mutex<Events>,
    /// What this transaction adds to the counts of threads. The commit writes it.
    pub(crate) additions: Mutex<Additions>,
    committed_signal: Arc<Notify>,
    approved: ApprovedCalls,
    pub(crate) hooked: HookedCommit,
}

impl Deref for TimedRead {
    type Target = Read;

    fn deref(&self) -> &Read {
        &self.read
    }
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
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let tx = self.begin_migration(SqliteTransactionMode::Immediate).await?;
        if tx.get_database_backend() == DbBackend::Postgres {
            tx.execute_unprepared(MIGRATION_TIMEOUT).await?;
            tx.execute_unprepared(MIGRATION_LOCK).await?;
        }
        if !self.is_current(&tx).await? {
            if tx.get_database_backend() == DbBackend::Postgres {
                self.schema.create(&tx).await?;
            }
            Migrator::up(&tx, None).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Whether the schema is that of this version.
    pub async fn is_up_to_date(&self) -> Result<bool, StoreError> {
        let tx = self.begin_migration(SqliteTransactionMode::Deferred).await?;
        self.is_current(&tx).await
    }

    /// Whether no migration is pending. On Postgres the transaction enters the schema.
    async fn is_current(&self, tx: &DatabaseTransaction) -> Result<bool, StoreError> {
        if tx.get_database_backend() == DbBackend::Postgres {
            self.schema.enter(tx).await?;
        }
        Ok(Migrator::get_pending_migrations_read_only(tx).await?.is_empty())
    }

    /// Begins a transaction of the kind that migrations take. On Postgres its connection closes with it.
    #[expect(clippy::disallowed_methods, reason = "the migrator takes no transaction of this module")]
    async fn begin_migration(&self, mode: SqliteTransactionMode) -> Result<DatabaseTransaction, DbErr> {
        let tx = self
            .db
            .for_migrations()
            .begin_with_options(TransactionOptions {
                sqlite_transaction_mode: Some(mode),
                ..Default::default()
            })
            .await?;
        if self.shared_sessions {
            tx.execute_unprepared("DEALLOCATE ALL").await?;
        }
        Ok(tx)
    }

    /// Returns the settings of the database server, with their values, under which a crash may lose committed
    /// data. A session cannot change these settings.
    pub async fn unsafe_settings(&self) -> Result<Vec<(String, String)>, StoreError> {
        if self.db.backend() != DbBackend::Postgres {
            return Ok(Vec::new());
        }
        let statement = Statement::from_string(DbBackend::Postgres, UNSAFE_SETTINGS);
        let rows = self.read_once().await?.tx.query_all_raw(statement).await?;
        let setting = |row: &QueryResult| Ok((row.try_get("", "name")?, row.try_get("", "setting")?));
        rows.iter().map(setting).collect()
    }

    /// Checks that the database answers on both pools.
    pub async fn ping(&self) -> Result<(), StoreError> {
        Tx::ping(&self.db, &self.schema).await?;
        Tx::ping(&self.urgent, &self.schema).await?;
        Ok(())
    }

    /// Whether only this process can write to the database, so that every execution in it runs here.
    pub fn has_one_writer(&self) -> bool {
        self.db.backend() == DbBackend::Sqlite
    }

    /// Begins a view.
    pub async fn read(&self) -> Result<Read, StoreError> {
        self.read_over(Pool::Chat).await
    }

    /// Begins a view that does not wait for chats, for the outcome of a decision.
    pub async fn urgent_read(&self) -> Result<Read, StoreError> {
        self.read_over(Pool::Urgent).await
    }

    /// Begins a view with the time of its beginning.
    pub async fn timed_read(&self) -> Result<TimedRead, StoreError> {
        let (read, micros) = self.view(Pool::Chat, BEGIN_TIMED_READ, BEGIN_SHARED_TIMED_READ).await?;
        Ok(TimedRead { read, now: self.time_of(micros) })
    }

    /// Takes a connection that does not wait for chats, for a single statement: each statement sees the rows
    /// of its own time.
    pub async fn read_once(&self) -> Result<Read, StoreError> {
        self.read_once_over(Pool::Urgent).await
    }

    /// Takes a connection of chats for a single statement.
    pub async fn chat_read_once(&self) -> Result<Read, StoreError> {
        self.read_once_over(Pool::Chat).await
    }

    async fn read_once_over(&self, pool: Pool) -> Result<Read, StoreError> {
        // A session that other clients used before needs the statements of a transaction.
        if self.shared_sessions {
            return self.read_over(pool).await;
        }
        let since = Instant::now();
        let taken = Tx::without_transaction(self.pool(pool), &self.schema).await;
        Ok(Read { tx: self.timed(pool, since, taken)? })
    }

    async fn read_over(&self, pool: Pool) -> Result<Read, StoreError> {
        Ok(self.view(pool, BEGIN_READ, BEGIN_SHARED_READ).await?.0)
    }

    /// Begins a view on Postgres with one of these statements, and returns the number that it selects, if any.
    async fn view(
        &self,
        pool: Pool,
        own: &'static str,
        shared: &'static str,
    ) -> Result<(Read, Option<i64>), StoreError> {
        let since = Instant::now();
        let begin = match (self.db.backend(), self.shared_sessions) {
            (DbBackend::Sqlite, _) => BEGIN_READ_SQLITE,
            (_, false) => own,
            (_, true) => shared,
        };
        let (tx, micros) =
            self.timed(pool, since, Tx::begin(self.pool(pool), &self.schema, begin, None).await)?;
        Ok((Read { tx }, micros))
    }

    /// Returns the time of this process, for what a reader sees. What a transaction changes depends on
    /// [`Write::now`].
    pub fn process_time(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns this time of the database, or that of the process on SQLite, which has no clock.
    fn time_of(&self, micros: Option<i64>) -> Timestamp {
        micros.map_or_else(|| self.clock.now(), Timestamp::from_micros)
    }

    /// Begins a transaction.
    pub async fn write(&self) -> Result<Write, StoreError> {
        self.write_over(Pool::Chat).await
    }

    /// Begins a transaction that does not wait for chats: for decisions, outcomes and renewals of leases.
    pub async fn urgent_write(&self) -> Result<Write, StoreError> {
        self.write_over(Pool::Urgent).await
    }

    async fn write_over(&self, pool: Pool) -> Result<Write, StoreError> {
        let since = Instant::now();
        let begin = match (self.db.backend(), self.shared_sessions) {
            (DbBackend::Sqlite, _) => BEGIN_WRITE_SQLITE,
            (_, false) => BEGIN_WRITE,
            (_, true) => BEGIN_SHARED_WRITE,
        };
        let turn = tokio::time::timeout(WRITE_TIMEOUT, self.writers.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else {
            self.metrics.connection_timed_out(pool.as_str());
            return Err(DbErr::ConnectionAcquire(ConnAcquireErr::Timeout).into());
        };
        let (tx, micros) =
            self.timed(pool, since, Tx::begin(self.pool(pool), &self.schema, begin, Some(turn)).await)?;
        Ok(Write {
            read: Read { tx },
            clock: self.clock.clone(),
            now: self.time_of(micros),
            metrics: self.metrics.clone(),
            reached: Mutex::default(),
            events: Mutex::default(),
            additions: Mutex::default(),
            committed_signal: self.committed_signal.clone(),
            approved: self.approved.clone(),
            hooked: HookedCommit::new(self.hook.clone()),
        })
    }

    const fn pool(&self, pool: Pool) -> &ConnectionPool {
        match pool {
            Pool::Chat => &self.db,
            Pool::Urgent => &self.urgent,
        }
    }

    /// Measures how long work has waited for a connection since `since`.
    fn timed<T>(&self, pool: Pool, since: Instant, taken: Result<T, DbErr>) -> Result<T, StoreError> {
        match &taken {
            Ok(_) => self.metrics.connection_waited(pool.as_str(), since.elapsed()),
            Err(DbErr::ConnectionAcquire(_)) => self.metrics.connection_timed_out(pool.as_str()),
            Err(_) => {}
        }
        Ok(taken?)
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

impl Write {
    /// Commits the transaction. Only code after `Ok` may emit its results.
    pub async fn commit(self) -> Result<(), StoreError> {
        let Events { waiting, inserted } = std::mem::take(&mut *self.events.lock());
        let has_events = inserted || !waiting.is_empty();
        self.insert_events(waiting).await?;
        Box::pin(self.write_additions()).await?;
        if has_events && self.tx.get_database_backend() == DbBackend::Sqlite {
            self.number_own_events().await?;
        }
        self.tx.flush().await?;
        self.hooked.before().await?;
        let Self { read, hooked, reached, metrics, committed_signal, approved, .. } = self;
        // Other writers continue while the hook waits.
        read.tx.commit().await?;
        hooked.after().await?;
        for reached in reached.into_inner() {
            reached.report(&metrics);
            approved.notify(&reached);
        }
        if has_events {
            committed_signal.notify_one();
        }
        Ok(())
    }

    /// Inserts these rows before the next other statement or the commit.
    pub(crate) fn insert_later<A: ActiveModelTrait>(
        &self,
        rows: impl IntoIterator<Item = A>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.later(Change::insert(rows))
    }

    /// Updates one row before the next other statement or the commit. That statement fails with this text unless the
    /// update changes one row.
    pub(crate) fn update_later<E: EntityTrait>(
        &self,
        update: UpdateMany<E>,
        otherwise: &'static str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.later(Some(Change::update(update, otherwise)))
    }

    async fn later(&self, change: Option<Change>) -> Result<(), StoreError> {
        if let Some(change) = change {
            self.tx.later(change).await?;
        }
        Ok(())
    }

    /// Returns the time of this transaction: the database's clock on Postgres, the process's clock on SQLite.
    pub fn now(&self) -> Timestamp {
        self.now
    }
}
