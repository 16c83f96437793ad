//! A session of the database: a connection of a pool, with or without a transaction.
//!
//! The statements that begin and end a transaction are written here, so that BEGIN, the settings and the time
//! take one round trip, and so that a connection is cleaned only when a transaction or a statement was dropped.

use crate::sql::batch::{Batch, Change, Guarded};
use crate::sql::pool::{Connection, ConnectionPool};
use crate::sql::schema::Schema;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use sea_orm::sqlx::postgres::PgRow;
use sea_orm::sqlx::query_with;
use sea_orm::sqlx::sqlite::SqliteRow;
use sea_orm::sqlx::{AssertSqlSafe, Executor, Row as _, raw_sql};
use sea_orm::{ConnectionTrait, DbBackend, DbErr, ExecResult, QueryResult, RuntimeErr, Statement, sqlx};
use sea_query_sqlx::SqlxValues;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, OwnedSemaphorePermit};

/// How long the database may take to answer, and then between two rows: slightly longer than its own statement timeout.
/// Without this limit, a connection that never answers would block its caller for good, and the pool would lose the
/// connection's place.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(7);
/// A statement that checks whether the database answers.
const PING: &str = "SELECT 1";
/// How long the rollback of a dropped transaction may take. After that the connection is closed.
const CLEAN_TIMEOUT: Duration = Duration::from_secs(2);
/// The beginnings of the Postgres codes after which a connection is useless: a failure of the connection, a
/// transaction that this process did not begin, a server that has become a standby, a session or a transaction
/// that was idle for too long, and a server that ends its sessions (appendix A of its manual).
const BROKEN: [&str; 6] = ["08", "25001", "25006", "25P03", "25P04", "57P"];

/// A session. A statement without an answer in time fails as if the database were unreachable.
#[derive(Debug)]
pub(crate) struct Tx {
    backend: DbBackend,
    schema: Arc<Schema>,
    session: Mutex<Session>,
    /// In a session without a transaction: the pool that replaces a connection that broke while it was idle.
    spare: Option<ConnectionPool>,
}

/// A connection in use. The pool gets the connection back after this value is dropped, and cleaned.
#[derive(Debug)]
struct Session {
    /// `None` only in a session that is being dropped.
    connection: Option<Connection>,
    /// Whether the connection may have an open transaction, or a statement that was dropped.
    is_open: bool,
    /// Whether the connection is useless.
    is_broken: bool,
    /// The turn of a writer. On SQLite the next writer begins after this transaction has ended.
    turn: Option<OwnedSemaphorePermit>,
    /// The changes that the next statement makes first.
    batch: Batch,
}

/// Returns the result, or an error after the timeout. The database may have done the work even so.
pub(crate) async fn within_timeout<T>(work: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
    let silent = || DbErr::Conn(RuntimeErr::Internal("the database did not answer in time".to_owned()));
    tokio::time::timeout(ANSWER_TIMEOUT, work).await.unwrap_or_else(|_| Err(silent()))
}

impl Tx {
    /// Begins a transaction with this text of one or several statements, and returns the first number that it
    /// selects, if any.
    pub(crate) async fn begin(
        pool: &ConnectionPool,
        schema: &Arc<Schema>,
        begin: &'static str,
        turn: Option<OwnedSemaphorePermit>,
    ) -> Result<(Self, Option<i64>), DbErr> {
        within_timeout(async {
            let mut tries = pool.size_max();
            let mut turn = turn;
            loop {
                let mut session = Session::acquire(pool).await?;
                (session.is_open, session.turn) = (true, turn.take());
                match session.connection()?.begin(begin).await {
                    Ok(selected) => return Ok((Self::of(pool, schema, session), selected)),
                    // The connection broke while it was idle.
                    Err(error) if is_broken(&error) && tries > 0 => {
                        tries -= 1;
                        session.is_broken = true;
                        turn = session.turn.take();
                    }
                    Err(error) => return Err(query_error(error)),
                }
            }
        })
        .await
    }

    /// Takes a connection without a transaction, for statements that read.
    pub(crate) async fn without_transaction(
        pool: &ConnectionPool,
        schema: &Arc<Schema>,
    ) -> Result<Self, DbErr> {
        let session = within_timeout(Session::acquire(pool)).await?;
        Ok(Self { spare: Some(pool.clone()), ..Self::of(pool, schema, session) })
    }

    /// Checks that the database answers.
    pub(crate) async fn ping(pool: &ConnectionPool, schema: &Arc<Schema>) -> Result<(), DbErr> {
        let read = Self::without_transaction(pool, schema).await?;
        read.query_one_raw(Statement::from_string(pool.backend(), PING)).await?;
        Ok(())
    }

    fn of(pool: &ConnectionPool, schema: &Arc<Schema>, session: Session) -> Self {
        let session = Mutex::new(session);
        Self { backend: pool.backend(), schema: schema.clone(), session, spare: None }
    }

    pub(crate) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Makes a change before the next other statement or the commit of this transaction: on Postgres together with
    /// other such changes.
    pub(crate) async fn later(&self, change: Change) -> Result<(), DbErr> {
        let mut session = self.session.lock().await;
        if self.backend != DbBackend::Postgres {
            return session.make(change, self.backend, &self.schema).await;
        }
        if !session.batch.takes(&change) {
            session.make_batch(&self.schema).await?;
        }
        session.batch.add(change);
        Ok(())
    }

    /// Makes a guarded change on Postgres. Returns whether a row matched the guard.
    pub(crate) async fn guarded(&self, change: Guarded) -> Result<bool, DbErr> {
        let counted = self.query_one_raw(change.into_statement()?).await?;
        let rows: i64 = counted.ok_or(DbErr::RecordNotUpdated)?.try_get_by_index(0)?;
        Ok(rows == 1)
    }

    /// Makes the changes that wait.
    pub(crate) async fn flush(&self) -> Result<(), DbErr> {
        self.session.lock().await.make_batch(&self.schema).await
    }

    /// Commits the transaction.
    pub(crate) async fn commit(self) -> Result<(), DbErr> {
        self.flush().await?;
        let mut session = self.session.into_inner();
        let committed =
            within_timeout(async { session.connection()?.run("COMMIT").await.map_err(exec_error) });
        let committed = committed.await;
        session.is_open = committed.is_err();
        session.is_broken = committed.as_ref().is_err_and(is_broken_off);
        committed
    }
}

impl Session {
    async fn acquire(pool: &ConnectionPool) -> Result<Self, DbErr> {
        let connection = Some(pool.acquire().await?);
        Ok(Self { connection, is_open: false, is_broken: false, turn: None, batch: Batch::default() })
    }

    fn connection(&mut self) -> Result<&mut Connection, DbErr> {
        self.connection.as_mut().ok_or_else(|| DbErr::Conn(RuntimeErr::Internal("no connection".to_owned())))
    }

    /// Runs one statement, and notes whether its failure breaks the connection.
    async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, DbErr>,
    ) -> Result<T, DbErr> {
        // A caller may drop this future. The rest of the answer is read when the connection is cleaned.
        let was_open = std::mem::replace(&mut self.is_open, true);
        let done = async { work(self.connection()?).await }.await;
        self.is_open = was_open;
        self.is_broken |= done.as_ref().is_err_and(is_broken_off);
        done
    }

    async fn execute(
        &mut self,
        work: impl AsyncFnOnce(&mut Connection) -> Result<ExecResult, sqlx::Error>,
    ) -> Result<ExecResult, DbErr> {
        let limited = async |connection: &mut Connection| {
            within_timeout(async { work(connection).await.map_err(exec_error) }).await
        };
        self.run(limited).await
    }

    /// Executes a statement, and returns how many rows it has changed.
    async fn change(&mut self, mut statement: Statement, schema: &Schema) -> Result<ExecResult, DbErr> {
        let values = values_of(&mut statement);
        let sql = AssertSqlSafe(schema.qualify(statement.sql));
        let done = self.execute(async |connection| match connection {
            Connection::Postgres(to) => {
                query_with(sql, values).execute(&mut **to).await.map(ExecResult::from)
            }
            Connection::Sqlite(to) => query_with(sql, values).execute(&mut **to).await.map(ExecResult::from),
        });
        done.await
    }

    async fn make(&mut self, change: Change, backend: DbBackend, schema: &Schema) -> Result<(), DbErr> {
        let changed = self.change(change.statement(backend), schema).await?;
        change.check(changed.rows_affected())
    }

    async fn make_batch(&mut self, schema: &Schema) -> Result<(), DbErr> {
        let mut batch = std::mem::take(&mut self.batch);
        if let Some(change) = batch.take_one() {
            return self.make(change, DbBackend::Postgres, schema).await;
        }
        if batch.is_empty() {
            return Ok(());
        }
        let (mut statement, counts) = batch.into_statement();
        statement.sql = schema.qualify(statement.sql);
        match self.query(statement).await?.first() {
            Some(row) => counts.check(row),
            None => Err(DbErr::RecordNotUpdated),
        }
    }

    async fn query(&mut self, mut statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        let values = values_of(&mut statement);
        let sql = AssertSqlSafe(statement.sql);
        let queried = self.run(async |connection| match connection {
            Connection::Postgres(to) => all(query_with(sql, values).fetch(&mut **to)).await,
            Connection::Sqlite(to) => all(query_with(sql, values).fetch(&mut **to)).await,
        });
        queried.await
    }
}

/// Collects the rows of a query. The timeout is about each row: a database whose rows still arrive can be reached.
async fn all<R>(mut rows: BoxStream<'_, Result<R, sqlx::Error>>) -> Result<Vec<QueryResult>, DbErr>
where
    QueryResult: From<R>,
{
    let mut found = Vec::new();
    while let Some(row) = within_timeout(async { rows.try_next().await.map_err(query_error) }).await? {
        found.push(QueryResult::from(row));
    }
    Ok(found)
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if self.is_broken {
            return connection.close();
        }
        if !self.is_open {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return connection.close() };
        let turn = self.turn.take();
        runtime.spawn(async move {
            let cleaned = tokio::time::timeout(CLEAN_TIMEOUT, connection.roll_back()).await;
            match cleaned {
                Ok(Ok(())) => drop(connection),
                _ => connection.close(),
            }
            drop(turn);
        });
    }
}

impl Connection {
    async fn begin(&mut self, sql: &'static str) -> Result<Option<i64>, sqlx::Error> {
        match self {
            Self::Postgres(connection) => {
                let rows: Vec<PgRow> = raw_sql(sql).fetch_all(&mut **connection).await?;
                rows.first().map(|row| row.try_get(0)).transpose()
            }
            Self::Sqlite(connection) => {
                let rows: Vec<SqliteRow> = raw_sql(sql).fetch_all(&mut **connection).await?;
                rows.first().map(|row| row.try_get(0)).transpose()
            }
        }
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(connection) => raw_sql(sql).execute(&mut **connection).await.map(drop),
            Self::Sqlite(connection) => raw_sql(sql).execute(&mut **connection).await.map(drop),
        }
    }

    /// Ends a transaction that may be open.
    async fn roll_back(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(_) => self.run("ROLLBACK").await,
            Self::Sqlite(_) => {
                if self.run("ROLLBACK").await.is_ok() {
                    return Ok(());
                }
                // SQLite ends a transaction by itself when a COMMIT fails because the disk is full. The
                // connection is not closed then: the last connection would remove the file beside the
                // database that readers need, which SQLite cannot create again on a full disk.
                self.run("BEGIN").await?;
                self.run("ROLLBACK").await
            }
        }
    }
}

fn values_of(statement: &mut Statement) -> SqlxValues {
    SqlxValues(statement.values.take().unwrap_or(sea_orm::Values(Vec::new())))
}

#[async_trait::async_trait]
impl ConnectionTrait for Tx {
    fn get_database_backend(&self) -> DbBackend {
        self.backend
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        let mut session = self.session.lock().await;
        session.make_batch(&self.schema).await?;
        session.change(statement, &self.schema).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        let sql = AssertSqlSafe(self.schema.qualify(sql.to_owned()));
        let mut session = self.session.lock().await;
        session.make_batch(&self.schema).await?;
        let done = session.execute(async |connection| match connection {
            Connection::Postgres(to) => to.execute(sql).await.map(ExecResult::from),
            Connection::Sqlite(to) => to.execute(sql).await.map(ExecResult::from),
        });
        done.await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        Ok(self.query_all_raw(statement).await?.into_iter().next())
    }

    async fn query_all_raw(&self, mut statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        statement.sql = self.schema.qualify(statement.sql);
        let mut session = self.session.lock().await;
        session.make_batch(&self.schema).await?;
        let Some(pool) = &self.spare else { return session.query(statement).await };
        let mut found = session.query(statement.clone()).await;
        let mut tries = pool.size_max();
        while tries > 0 && found.as_ref().is_err_and(is_broken_connection) {
            tries -= 1;
            *session = within_timeout(Session::acquire(pool)).await?;
            found = session.query(statement.clone()).await;
        }
        found
    }
}

fn exec_error(error: sqlx::Error) -> DbErr {
    DbErr::Exec(RuntimeErr::SqlxError(Arc::new(error)))
}

fn query_error(error: sqlx::Error) -> DbErr {
    DbErr::Query(RuntimeErr::SqlxError(Arc::new(error)))
}

/// Whether a connection is useless after this error.
fn is_broken(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
            true
        }
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| BROKEN.iter().any(|broken| code.starts_with(broken)))
        }
        _ => false,
    }
}

/// Whether this is such an error of a connection. A timeout is not.
fn is_broken_connection(error: &DbErr) -> bool {
    match error {
        DbErr::Exec(RuntimeErr::SqlxError(error)) | DbErr::Query(RuntimeErr::SqlxError(error)) => {
            is_broken(error)
        }
        _ => false,
    }
}

/// Whether a connection is useless after this error of this module, of which the timeout is one.
fn is_broken_off(error: &DbErr) -> bool {
    matches!(error, DbErr::Conn(_)) || is_broken_connection(error)
}
