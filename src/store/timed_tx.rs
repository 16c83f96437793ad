//! A transaction with a timeout for each answer of the database.

use sea_orm::{
    ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, ExecResult, QueryResult, RuntimeErr, Statement,
};
use std::future::Future;
use std::time::Duration;

/// How long the database may take to answer: slightly longer than its own statement timeout. Without this
/// limit, a connection that never answers would block its caller for good, and the pool would lose the
/// connection's place.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(7);

/// A transaction. A statement without an answer in time fails as if the database were unreachable.
#[derive(Debug)]
pub(super) struct TimedTx(pub(super) DatabaseTransaction);

/// Returns the result, or an error after the timeout. The database may have done the work all the same.
pub(super) async fn within_timeout<T>(work: impl Future<Output = Result<T, DbErr>>) -> Result<T, DbErr> {
    let silent = || DbErr::Conn(RuntimeErr::Internal("the database did not answer in time".to_owned()));
    tokio::time::timeout(ANSWER_TIMEOUT, work).await.unwrap_or_else(|_| Err(silent()))
}

impl TimedTx {
    pub(super) async fn commit(self) -> Result<(), DbErr> {
        within_timeout(self.0.commit()).await
    }
}

#[async_trait::async_trait]
impl ConnectionTrait for TimedTx {
    fn get_database_backend(&self) -> DbBackend {
        self.0.get_database_backend()
    }

    async fn execute_raw(&self, statement: Statement) -> Result<ExecResult, DbErr> {
        within_timeout(self.0.execute_raw(statement)).await
    }

    async fn execute_unprepared(&self, sql: &str) -> Result<ExecResult, DbErr> {
        within_timeout(self.0.execute_unprepared(sql)).await
    }

    async fn query_one_raw(&self, statement: Statement) -> Result<Option<QueryResult>, DbErr> {
        within_timeout(self.0.query_one_raw(statement)).await
    }

    async fn query_all_raw(&self, statement: Statement) -> Result<Vec<QueryResult>, DbErr> {
        within_timeout(self.0.query_all_raw(statement)).await
    }
}
