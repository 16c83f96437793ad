//! A transaction whose database has to answer.

#[cfg(feature = "torture")]
use super::planted::Connection as DatabaseTransaction;
#[cfg(not(feature = "torture"))]
use sea_orm::DatabaseTransaction;
use sea_orm::{ConnectionTrait, DbBackend, DbErr, ExecResult, QueryResult, RuntimeErr, Statement};
use std::future::Future;
use std::time::Duration;

/// How long the database may take to answer: a little longer than it gives itself. On a connection that swallows
/// everything nobody would ever come back, and its place in the pool would be gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(7);

/// A transaction; whoever waits for an answer in vain is told that the database is not there.
#[derive(Debug)]
pub(super) struct TimedTx(pub(super) DatabaseTransaction);

/// The answer, or that there was none in time. What was asked may have been done all the same.
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
