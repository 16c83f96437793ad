//! The error of the store.

use sea_orm::sqlx;
use sea_orm::{DbErr, RuntimeErr};

/// A failure of the database, or an invalid row in it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused the request, or did not report its outcome.
    #[error(transparent)]
    Database(#[from] DbErr),
    /// Another process serves from the same SQLite file. Only one process may.
    #[error("another process serves from this database; SQLite takes one, use Postgres for more")]
    InUse,
    /// Another process has the SQLite file open, and the lock file that would show whether that process
    /// serves was deleted or replaced.
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
    /// The tables are in the schema `public`, and the configured schema has none.
    #[error(
        "the tables of holdpoint are in the schema public, and the schema {schema} has none: set \
         database.schema = \"public\" to use them there, or move them to {schema} with migrations/move_postgres.sql \
         (see docs/operations.md)"
    )]
    InPublic { schema: String },
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
        table: &'static str,
        /// The error in the row.
        what: String,
    },
}

impl StoreError {
    /// Whether the database was unreachable, broke off or has no room. The outcome of the request is unknown,
    /// and a retry is safe.
    pub fn is_unavailable(&self) -> bool {
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
            | Self::InPublic { .. }
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
