//! Bugs of the store, for the torture run.

use sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, ExecResult, QueryResult,
    Statement,
};

/// What a transaction's statements go over.
#[derive(Debug)]
pub(super) enum Connection {
    /// A transaction.
    Whole(DatabaseTransaction),
    /// [`Bug::LeakedTransaction`](crate::faults::Bug): none of its own. Each statement takes any connection, and is
    /// committed by itself, unless somebody left a transaction open there.
    Bare(DatabaseConnection),
}

impl Connection {
    pub(super) async fn commit(self) -> Result<(), DbErr> {
        match self {
            Self::Whole(tx) => tx.commit().await,
            Self::Bare(_) => Ok(()),
        }
    }

    /// One without a transaction, and now and then a session with one that nobody will end.
    pub(super) async fn bare(db: &DatabaseConnection, luck: f64) -> Result<Self, DbErr> {
        if luck < LEAKS {
            db.execute_unprepared("BEGIN").await?;
        }
        Ok(Self::Bare(db.clone()))
    }
}

/// The share of begins that are dropped half-way.
const LEAKS: f64 = 0.05;

#[async_trait::async_trait]
impl ConnectionTrait for Connection {
    fn get_database_backend(&self) -> DbBackend {
        match self {
            Self::Whole(tx) => tx.get_database_backend(),
            Self::Bare(db) => db.get_database_backend(),
        }
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        match self {
            Self::Whole(tx) => tx.execute_raw(statement).await,
            Self::Bare(db) => db.execute_raw(statement).await,
        }
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        match self {
            Self::Whole(tx) => tx.execute_unprepared(sql).await,
            Self::Bare(db) => db.execute_unprepared(sql).await,
        }
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        match self {
            Self::Whole(tx) => tx.query_one_raw(statement).await,
            Self::Bare(db) => db.query_one_raw(statement).await,
        }
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        match self {
            Self::Whole(tx) => tx.query_all_raw(statement).await,
            Self::Bare(db) => db.query_all_raw(statement).await,
        }
    }
}
