//! Pools of connections.
//!
//! A pooled connection to Postgres is not checked: neither when the pool takes it back, nor when the pool hands
//! it out. Each check is a round trip. A transaction whose BEGIN fails because its connection broke takes another
//! connection, and so does a single read, see [`Tx`](crate::sql::tx::Tx).
//!
//! SQLite has one writer; the others would sleep and look again, in no order. So the writers of a process queue. With
//! 16 clients the slowest 1 % of requests took five times as long without the queue.

use deadpool::managed;
use sea_orm::sqlx::pool::PoolConnection;
use sea_orm::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sea_orm::sqlx::{self, ConnectOptions as _, Executor as _, PgConnection, Sqlite, SqlitePool};
use sea_orm::{
    ConnAcquireErr, DatabaseConnection, DbBackend, DbErr, RuntimeErr, SqlxPostgresConnector,
    SqlxSqliteConnector,
};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// After this age a connection is replaced, so that the connections follow a database whose address moves.
const AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// The time between two attempts to connect to a database that starts.
const RETRY: Duration = Duration::from_millis(50);

/// A pool of connections to one database.
#[derive(Debug, Clone)]
pub(crate) enum ConnectionPool {
    Postgres {
        connections: managed::Pool<Manager>,
        /// How long a caller waits for a connection.
        acquire_timeout: Duration,
    },
    Sqlite(SqlitePool),
}

/// Opens connections to Postgres.
#[derive(Debug)]
pub(crate) struct Manager {
    options: PgConnectOptions,
    /// The settings of each new connection.
    settings: Option<&'static str>,
}

/// A connection of a pool, which gets the connection back when this value is dropped.
#[derive(Debug)]
pub(crate) enum Connection {
    Postgres(managed::Object<Manager>),
    Sqlite(PoolConnection<Sqlite>),
}

impl managed::Manager for Manager {
    type Type = PgConnection;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<PgConnection, sqlx::Error> {
        loop {
            // Boxed, because the future of each transaction contains this one, and few connect.
            match Box::pin(self.options.connect()).await {
                Ok(mut connection) => {
                    if let Some(settings) = self.settings {
                        connection.execute(settings).await?;
                    }
                    return Ok(connection);
                }
                Err(error) if is_starting(&error) => tokio::time::sleep(RETRY).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn recycle(
        &self,
        _: &mut PgConnection,
        metrics: &managed::Metrics,
    ) -> managed::RecycleResult<sqlx::Error> {
        if metrics.age() > AGE_MAX {
            return Err(managed::RecycleError::message("the connection is old"));
        }
        Ok(())
    }
}

/// Whether a database that starts answers with this error, or one that closes connections at the moment.
fn is_starting(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        sqlx::Error::Database(error) => error.is_transient_in_connect_phase(),
        _ => false,
    }
}

impl ConnectionPool {
    /// Returns a pool of this many connections to Postgres. Nothing connects yet.
    pub(crate) fn postgres(
        options: PgConnectOptions,
        settings: Option<&'static str>,
        max_connections: u32,
        acquire_timeout: Duration,
    ) -> Result<Self, managed::BuildError> {
        let size = usize::try_from(max_connections).unwrap_or(usize::MAX);
        let mut config = managed::PoolConfig::new(size);
        // Few connections do most of the work, with warm caches.
        config.queue_mode = managed::QueueMode::Lifo;
        let connections = managed::Pool::builder(Manager { options, settings }).config(config).build()?;
        Ok(Self::Postgres { connections, acquire_timeout })
    }

    pub(crate) const fn backend(&self) -> DbBackend {
        match self {
            Self::Postgres { .. } => DbBackend::Postgres,
            Self::Sqlite(_) => DbBackend::Sqlite,
        }
    }

    pub(crate) fn size_max(&self) -> usize {
        match self {
            Self::Postgres { connections, .. } => connections.status().max_size,
            Self::Sqlite(pool) => usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX),
        }
    }

    pub(crate) async fn acquire(&self) -> Result<Connection, DbErr> {
        match self {
            Self::Postgres { connections, acquire_timeout } => {
                match tokio::time::timeout(*acquire_timeout, connections.get()).await {
                    Ok(Ok(connection)) => Ok(Connection::Postgres(connection)),
                    Ok(Err(managed::PoolError::Backend(error))) => Err(acquire_error(error)),
                    Ok(Err(managed::PoolError::Closed)) => Err(acquire_error(sqlx::Error::PoolClosed)),
                    Ok(Err(_)) | Err(_) => Err(acquire_error(sqlx::Error::PoolTimedOut)),
                }
            }
            Self::Sqlite(pool) => pool.acquire().await.map(Connection::Sqlite).map_err(acquire_error),
        }
    }

    /// Returns a connection of the kind that the migrator takes: on Postgres an extra one. The caller closes it.
    pub(crate) fn for_migrations(&self) -> DatabaseConnection {
        match self {
            Self::Postgres { connections, acquire_timeout } => {
                let one = PgPoolOptions::new().max_connections(1).acquire_timeout(*acquire_timeout);
                let options = connections.manager().options.clone();
                SqlxPostgresConnector::from_sqlx_postgres_pool(one.connect_lazy_with(options))
            }
            // A database in memory exists on one connection only.
            Self::Sqlite(pool) => SqlxSqliteConnector::from_sqlx_sqlite_pool(pool.clone()),
        }
    }
}

impl Connection {
    /// Closes the connection instead of giving it back.
    pub(crate) fn close(self) {
        match self {
            Self::Postgres(connection) => drop(managed::Object::take(connection)),
            Self::Sqlite(mut connection) => connection.close_on_drop(),
        }
    }
}

fn acquire_error(error: sqlx::Error) -> DbErr {
    match error {
        sqlx::Error::PoolTimedOut => DbErr::ConnectionAcquire(ConnAcquireErr::Timeout),
        sqlx::Error::PoolClosed => DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed),
        other => DbErr::Conn(RuntimeErr::SqlxError(Arc::new(other))),
    }
}
