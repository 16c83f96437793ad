//! Planted bugs of the store, and failing commits, for the torture run.

use super::entity::{sent_answer, tool_call};
use super::events::Subject;
use super::{Read, StoreError, Thread, Write};
use crate::domain::call::{Execution, ToolCall};
use crate::domain::decision::Choice;
use crate::domain::event::{EventType, system};
use crate::domain::id::{ExecId, ToolCallId};
use crate::domain::model_texts;
use crate::domain::permit::Permit;
use crate::faults::{self, Bug};
use sea_orm::sea_query::{Expr, SimpleExpr};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, EntityTrait,
    ExecResult, QueryFilter, QueryResult, RuntimeErr, Statement,
};
use serde_json::json;
use uuid::Uuid;

/// The connection for the statements of a transaction.
#[derive(Debug)]
pub(super) enum Connection {
    /// A transaction.
    Whole(DatabaseTransaction),
    /// [`Bug::LeakedTransaction`]: no transaction. Each statement takes any connection and commits by itself,
    /// unless that connection has an open transaction.
    Bare(DatabaseConnection),
}

impl Connection {
    pub(super) async fn commit(self) -> Result<(), DbErr> {
        match self {
            Self::Whole(tx) => tx.commit().await,
            Self::Bare(_) => Ok(()),
        }
    }

    /// Returns a connection without a transaction. Sometimes leaves a session with a transaction that never
    /// ends.
    pub(super) async fn bare(db: &DatabaseConnection, chance: f64) -> Result<Self, DbErr> {
        if chance < LEAKS {
            db.execute_unprepared("BEGIN").await?;
        }
        Ok(Self::Bare(db.clone()))
    }
}

/// The share of begins that are dropped midway.
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

/// Returns the error of a commit that a failpoint fails.
pub(super) fn cut_off() -> StoreError {
    DbErr::Conn(RuntimeErr::Internal("a failpoint cut the connection".to_owned())).into()
}

/// Returns the weaker guard that a process with a planted bug uses for this transition.
pub(super) fn weakened(from: &str, to: &str) -> Option<SimpleExpr> {
    match (from, to) {
        ("pending", "approved" | "rejected") if faults::has(Bug::DecideAnyState) => Some(Expr::value(true)),
        ("executing", "approved") | ("approved", "executing") if faults::has(Bug::ReapToApproved) => {
            Some(tool_call::Column::State.eq(from))
        }
        _ => None,
    }
}

impl Read {
    /// [`Bug::ClaimAfterTool`]: a permit for a call that no process has claimed.
    pub(crate) fn permit_without_claim(&self, thread: &Thread, call: &ToolCall) -> Permit {
        let execution = Execution { id: ExecId::new(Uuid::nil()), attempt: 1, started_at: call.created_at };
        let edited = call.edited_input().cloned();
        Permit::committed(
            call.id,
            call.name.clone(),
            thread.requester(),
            call.input.clone(),
            edited,
            execution,
        )
    }
}

impl Write {
    /// [`Bug::ReapById`]: closes a call that was silent at an earlier query, whatever its state is now.
    pub(crate) async fn reap_by_id(&self, id: ToolCallId) -> Result<(), StoreError> {
        let Some(call) = self.any_call(id).await? else { return Ok(()) };
        let thread = self.any_thread(call.thread_id).await?;
        tool_call::Entity::update_many()
            .col_expr(tool_call::Column::State, Expr::value("interrupted"))
            .col_expr(tool_call::Column::Result, Expr::value(model_texts::INTERRUPTED))
            .col_expr(tool_call::Column::FinishedAt, Expr::value(self.now.as_micros()))
            .col_expr(tool_call::Column::LeaseUntil, Expr::value(None::<i64>))
            .filter(tool_call::Column::ToolCallId.eq(id.to_string()))
            .exec(&self.tx)
            .await?;
        let subject = Subject::call(&thread, &call);
        let data = json!({ "tool_name": call.name, "state": "interrupted" });
        self.event(EventType::ToolInterrupted, system::SWEEPER, &subject, data).await
    }

    /// [`Bug::LateRewrites`]: changes texts that the model has read.
    pub(super) async fn rewrite_answers(&self, call: ToolCallId, result: &str) -> Result<(), StoreError> {
        sent_answer::Entity::update_many()
            .col_expr(sent_answer::Column::Text, Expr::value(result))
            .filter(sent_answer::Column::ToolCallId.eq(call.to_string()))
            .exec(&self.tx)
            .await?;
        Ok(())
    }

    /// [`Bug::LastWins`]: replaces the decision in force by a later one.
    pub(crate) async fn overrule(
        &self,
        call: &ToolCall,
        answer: &Choice,
        actor: &str,
    ) -> Result<(), StoreError> {
        tool_call::Entity::update_many()
            .col_expr(tool_call::Column::Validated, Expr::value(matches!(answer, Choice::Approve { .. })))
            .col_expr(tool_call::Column::DecidedBy, Expr::value(actor))
            .col_expr(tool_call::Column::DecidedAt, Expr::value(self.now.as_micros()))
            .filter(tool_call::Column::ToolCallId.eq(call.id.to_string()))
            .exec(&self.tx)
            .await?;
        Ok(())
    }
}
