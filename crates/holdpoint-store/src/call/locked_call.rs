//! Calls that a transaction is about to move. One statement locks the call together with its thread and its
//! run, and reads everything that a decision, a claim or an outcome depends on.

use crate::decision::inbox::visible_calls;
use crate::entity::{message, run, thread, tool_call};
use crate::{LockedThread, StoreError, Visibility, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::{StateKind, ToolCall};
use holdpoint_core::id::ToolCallId;
use sea_orm::sea_query::LockType;
use sea_orm::{
    ColumnTrait, DbErr, EntityName, EntityTrait, FromQueryResult, IdenStatic, Iterable, JoinType,
    QueryFilter, QueryResult, QuerySelect, QueryTrait, RelationTrait, Select,
};

/// The prefix of the columns of the thread.
const OF_THREAD: &str = "locked_";

/// A call that is locked until the transaction ends, with its thread and its run.
#[derive(Debug)]
pub struct LockedCall {
    /// The call, as this transaction leaves it.
    pub call: ToolCall,
    pub thread: LockedThread,
    /// The roles of the user of the run, as of the last start or resume of the run.
    pub roles: Vec<String>,
    /// The approver as whose delegate the decider decides, as an actor. `None` for all other work with the call.
    pub on_behalf_of: Option<String>,
    /// The actors that approved the inputs that run, if people or a handler approved the call.
    pub(crate) approved_by: Vec<String>,
    /// The number of executions so far.
    pub(crate) attempts: i32,
    /// Whether the server resumes the run.
    pub server_resumes: bool,
    /// Whether an expiry has had the server resume the run, and no person has acted since.
    resumed_alone: bool,
    /// Whether the user sent a message after the run.
    pub(crate) is_passed: bool,
}

/// The rows of such a call.
#[derive(Debug)]
pub(crate) struct LockedRow {
    pub(crate) call: tool_call::Model,
    pub(crate) thread: LockedThread,
    roles: String,
    server_resumes: bool,
    resumed_alone: bool,
    pub(crate) is_passed: bool,
}

/// The columns that the statement selects.
struct Columns {
    call: tool_call::Model,
    thread: thread::Model,
    roles: String,
    server_resumes: bool,
    resumed_alone: bool,
    /// The ordinal of the run's answer, which never changes.
    answer: i64,
}

impl FromQueryResult for Columns {
    fn from_query_result(row: &QueryResult, prefix: &str) -> Result<Self, DbErr> {
        Ok(Self {
            call: tool_call::Model::from_query_result(row, prefix)?,
            thread: thread::Model::from_query_result(row, OF_THREAD)?,
            roles: row.try_get(prefix, "roles")?,
            server_resumes: row.try_get(prefix, "server_resumes")?,
            resumed_alone: row.try_get(prefix, "resumed_alone")?,
            answer: row.try_get(prefix, "answer")?,
        })
    }
}

/// Adds the thread, the run and the ordinal of the run's answer to calls whose thread is joined already, and
/// locks the rows.
///
/// Postgres locks the tables in the order of the list, so the thread comes first, as in every transaction.
/// After a wait for a lock Postgres reads the locked rows again, but no other row. So the statement reads
/// nothing of the answer that can change. SQLite locks no rows: a writer is alone.
fn locked(calls: Select<tool_call::Entity>) -> Select<tool_call::Entity> {
    let mut locked = calls
        .join(JoinType::InnerJoin, tool_call::Relation::Run.def())
        .join(JoinType::InnerJoin, run::Relation::Answer.def())
        .column(run::Column::Roles)
        .column(run::Column::ServerResumes)
        .column(run::Column::ResumedAlone)
        .column_as(message::Column::Ordinal, "answer");
    for column in thread::Column::iter() {
        locked = locked.column_as(column, format!("{OF_THREAD}{}", column.as_str()));
    }
    let order = [thread::Entity.table_name(), run::Entity.table_name(), tool_call::Entity.table_name()];
    QueryTrait::query(&mut locked).lock_with_tables(LockType::Update, order);
    locked
}

impl Write {
    /// Locks a call that the principal may see.
    pub async fn lock_visible_call(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        id: ToolCallId,
    ) -> Result<Option<LockedCall>, StoreError> {
        let found = self.lock_one(visible_calls(principal, visibility), id).await?;
        self.with_decision(found).await
    }

    /// Locks a call, whatever its owner, for work of the server itself.
    pub async fn lock_call(&self, id: ToolCallId) -> Result<Option<LockedCall>, StoreError> {
        let found = self.lock_row(id).await?;
        self.with_decision(found).await
    }

    /// Locks the row of a call, whatever its owner.
    pub(crate) async fn lock_row(&self, id: ToolCallId) -> Result<Option<LockedRow>, StoreError> {
        let all = tool_call::Entity::find().join(JoinType::InnerJoin, tool_call::Relation::Thread.def());
        self.lock_one(all, id).await
    }

    /// Locks the row of one of these calls, whose thread is joined.
    pub(crate) async fn lock_one(
        &self,
        calls: Select<tool_call::Entity>,
        id: ToolCallId,
    ) -> Result<Option<LockedRow>, StoreError> {
        let found = locked(calls).filter(tool_call::Column::ToolCallId.eq(id.to_string()));
        let Some(found) = found.into_model::<Columns>().one(&self.tx).await? else { return Ok(None) };
        let Columns { call, thread, roles, server_resumes, resumed_alone, answer } = found;
        let thread = self.locked(thread)?;
        // The ordinals of a thread count from 0 without a gap.
        let next = u64::try_from(answer.saturating_add(1)).unwrap_or_default();
        let is_passed = next < thread.extent.messages;
        Ok(Some(LockedRow { call, thread, roles, server_resumes, resumed_alone, is_passed }))
    }

    /// Adds the decision in force, and the approvals that it counted. A pending call has no decision.
    async fn with_decision(&self, found: Option<LockedRow>) -> Result<Option<LockedCall>, StoreError> {
        const TABLE: &str = "runs";
        let Some(LockedRow { call, thread, roles, server_resumes, resumed_alone, is_passed }) = found else {
            return Ok(None);
        };
        let (decision, approved_by) = if call.state == StateKind::Pending.word() {
            (None, Vec::new())
        } else {
            self.decision_and_approvers(&call.tool_call_id).await?
        };
        Ok(Some(LockedCall {
            on_behalf_of: None,
            approved_by,
            attempts: call.exec_attempt,
            call: rows::call(call, decision)?,
            thread,
            roles: rows::json(TABLE, &roles)?,
            server_resumes,
            resumed_alone,
            is_passed,
        }))
    }

    /// Sets whether the server or a client resumes the run of a call after the last of its calls ended. The
    /// server always resumes a run that a call waits for. Returns whether the server resumes the run.
    pub async fn allow_resume(&self, of: &LockedCall, server_resumes: bool) -> Result<bool, StoreError> {
        let server_resumes = server_resumes || self.is_delegated_to(&of.thread).await?;
        if server_resumes != of.server_resumes || of.resumed_alone {
            self.person_resumes(&of.thread, of.call.run_id, server_resumes).await?;
        }
        Ok(server_resumes)
    }
}
