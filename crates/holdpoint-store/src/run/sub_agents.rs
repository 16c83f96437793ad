//! Delegated calls: created together with their child run, and ended by its end.
//!
//! A transaction that locks a child's thread and its parent's thread locks the child's first. Exception: the
//! transaction that creates the child, because no other transaction knows that child.

use crate::call::executions::Settling;
use crate::call::permit::Permit;
use crate::call::transitions::Executing;
use crate::entity::{run, tool_call};
use crate::{LockedRow, NewThread, Question, Read, StoreError, Thread, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::{Outcome, StateKind, ToolCall};
use holdpoint_core::event::system;
use holdpoint_core::event_data::MoveCause;
use holdpoint_core::id::{RunId, ThreadId, ToolCallId};
use holdpoint_core::message::{Part, StepStatus, UserWords};
use holdpoint_core::run::{Run, RunOptions};
use holdpoint_core::text::without_nul;
use holdpoint_core::tool::assignment::Assignment;
use sea_orm::sea_query::{Expr, ExprTrait, Query, SelectStatement, SimpleExpr};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityName, EntityTrait, FromQueryResult, PaginatorTrait,
    QueryFilter, QueryOrder, QuerySelect, Statement,
};

/// Maximum number of calls that one query returns.
const PAGE: u64 = 100;

// Literals, without parameters, so that the partial index `tool_calls_delegated` is usable.

/// A child run executes the call.
pub(crate) const DELEGATED: &str = "(state = 'executing' AND child_run_id IS NOT NULL)";

/// The child run has ended. A failed child run with open calls, or a failed one that the server resumes, may
/// continue.
const ENDED: &str = r#"EXISTS (SELECT 1 FROM "holdpoint".runs child WHERE child.run_id = tool_calls.child_run_id
    AND (child.status IN ('completed', 'cancelled') OR (child.status = 'failed' AND NOT child.server_resumes
        AND NOT EXISTS (SELECT 1 FROM "holdpoint".tool_calls opened
            WHERE opened.message_id = child.assistant_message_id AND opened.finished_at IS NULL))))"#;

/// The child run waits, and none of its calls is open: the run is to start or to resume.
const READY: &str = r#"EXISTS (SELECT 1 FROM "holdpoint".runs child WHERE child.run_id = tool_calls.child_run_id
    AND child.status = 'waiting' AND NOT EXISTS (SELECT 1 FROM "holdpoint".tool_calls opened
        WHERE opened.message_id = child.assistant_message_id AND opened.finished_at IS NULL))"#;

/// The child run is neither completed nor cancelled, and no cancel of it is requested.
const CONTINUES: &str = r#"EXISTS (SELECT 1 FROM "holdpoint".runs child WHERE child.run_id = tool_calls.child_run_id
    AND child.status IN ('running', 'waiting', 'failed') AND child.cancel_requested_at IS NULL)"#;

/// The call is to stop: a cancel of the call or its run is requested, its run is cancelled, its message is
/// superseded, its thread is deleted, or the child's thread is deleted.
const UNWANTED: &str = r#"(tool_calls.cancel_requested_at IS NOT NULL
    OR EXISTS (SELECT 1 FROM "holdpoint".runs own WHERE own.run_id = tool_calls.run_id
        AND (own.status = 'cancelled' OR own.cancel_requested_at IS NOT NULL))
    OR EXISTS (SELECT 1 FROM "holdpoint".messages WHERE messages.message_id = tool_calls.message_id
        AND messages.superseded_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM "holdpoint".threads WHERE threads.thread_id = tool_calls.thread_id
        AND threads.deleted_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM "holdpoint".runs child JOIN "holdpoint".threads ON threads.thread_id = child.thread_id
        WHERE child.run_id = tool_calls.child_run_id AND threads.deleted_at IS NOT NULL))"#;

/// Counts the sub-agents below the root of a run. The root is the run itself, or the run above it that no
/// call waits for.
const AGENTS: &str = r#"WITH RECURSIVE above (run_id) AS (
        SELECT CAST($1 AS TEXT)
        UNION ALL SELECT tool_calls.run_id FROM "holdpoint".tool_calls
        JOIN above ON tool_calls.child_run_id = above.run_id),
    below (run_id) AS (
        SELECT run_id FROM above
        WHERE NOT EXISTS (SELECT 1 FROM "holdpoint".tool_calls WHERE tool_calls.child_run_id = above.run_id)
        UNION ALL SELECT tool_calls.child_run_id FROM below
        JOIN "holdpoint".runs ON runs.run_id = below.run_id
        JOIN "holdpoint".tool_calls ON tool_calls.message_id = runs.assistant_message_id
        WHERE tool_calls.child_run_id IS NOT NULL)
    SELECT count(*) - 1 AS agents FROM below"#;

#[derive(Debug, Clone, Copy)]
pub struct AgentLimits {
    /// Maximum depth of nesting.
    pub depth: u32,
    /// Maximum number of sub-agents below the root of a run, since the root started.
    pub per_run: u32,
}

#[derive(FromQueryResult)]
struct Agents {
    agents: i64,
}

/// The result of delegating a call to a child run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegateOutcome {
    /// The child run exists, and executes the call.
    Started,
    /// The nesting limit is reached. No child run was created.
    TooDeep,
    /// The root of the run has the maximum number of sub-agents. No child run was created.
    TooMany,
    /// The call is no longer wanted. No child run was created.
    Unwanted,
    /// This execution no longer holds the call.
    Lost,
}

/// A call that a child run executes.
#[derive(Debug, Clone, Copy)]
pub struct DelegatedCall {
    pub id: ToolCallId,
    pub child: RunId,
}

/// A child run that has ended, and the call that waits for it. The threads of both are locked.
#[derive(Debug)]
pub struct EndedChild {
    pub call: ToolCall,
    pub run: Run,
    /// The text of the last complete step of the child run.
    pub words: String,
}

fn runs_of(thread: ThreadId) -> SelectStatement {
    Query::select()
        .column(run::Column::RunId)
        .from(run::Entity.table_ref())
        .and_where(run::Column::ThreadId.eq(thread.to_string()))
        .to_owned()
}

/// Matches the delegated calls whose child run is to start, resume or stop, or has ended.
fn has_child_to_drive() -> SimpleExpr {
    let stops = Expr::cust(UNWANTED).and(Expr::cust(CONTINUES));
    Expr::cust(DELEGATED).and(Expr::cust(ENDED).or(Expr::cust(READY)).or(stops))
}

impl Read {
    /// Whether a call waits for a run of this thread. Until the call ends, no user may write in the thread.
    pub async fn is_delegated_to(&self, thread: &Thread) -> Result<bool, StoreError> {
        if thread.parent_id.is_none() {
            return Ok(false);
        }
        let waiting = tool_call::Entity::find()
            .filter(tool_call::Column::State.eq(StateKind::Executing.word()))
            .filter(tool_call::Column::ChildRunId.in_subquery(runs_of(thread.id)));
        Ok(waiting.count(&self.tx).await? > 0)
    }

    /// Returns the number of sub-agents around this thread, its own included, counted up to `most`.
    async fn agent_depth(&self, thread: &Thread, most: u32) -> Result<u32, StoreError> {
        let mut at = thread.id;
        for depth in 0..most {
            let by: Option<String> = tool_call::Entity::find()
                .select_only()
                .column(tool_call::Column::ThreadId)
                .filter(tool_call::Column::ChildRunId.in_subquery(runs_of(at)))
                .limit(1)
                .into_tuple()
                .one(&self.tx)
                .await?;
            let Some(by) = by else { return Ok(depth) };
            at = rows::id("tool_calls", &by)?;
        }
        Ok(most)
    }

    /// Returns the number of sub-agents below the root of a run.
    async fn agents(&self, run: &str) -> Result<i64, StoreError> {
        let count = match self.tx.get_database_backend() {
            DbBackend::Sqlite => Statement::from_sql_and_values(DbBackend::Sqlite, AGENTS, [run.into()]),
            _ => Statement::from_sql_and_values(DbBackend::Postgres, AGENTS, [run.into()]),
        };
        let found = Agents::find_by_statement(count).one(&self.tx).await?;
        Ok(found.map_or(0, |found| found.agents))
    }

    /// Returns the delegated calls after this one, in the order of their ids, whose child run is to start,
    /// resume or stop, or has ended. An empty list means that no more exist.
    pub async fn delegated_calls(&self, after: Option<ToolCallId>) -> Result<Vec<DelegatedCall>, StoreError> {
        let mut found = tool_call::Entity::find()
            .select_only()
            .columns([tool_call::Column::ToolCallId, tool_call::Column::ChildRunId])
            .filter(has_child_to_drive())
            .order_by_asc(tool_call::Column::ToolCallId)
            .limit(PAGE);
        if let Some(after) = after {
            found = found.filter(tool_call::Column::ToolCallId.gt(after.to_string()));
        }
        let found: Vec<(String, String)> = found.into_tuple().all(&self.tx).await?;
        let ids = found.iter().map(|(id, child)| {
            Ok(DelegatedCall { id: rows::id("tool_calls", id)?, child: rows::id("tool_calls", child)? })
        });
        ids.collect()
    }

    async fn found_now(&self, call: ToolCallId, so: SimpleExpr) -> Result<bool, StoreError> {
        let found = tool_call::Entity::find_by_id(call.to_string()).filter(Expr::cust(DELEGATED)).filter(so);
        Ok(found.count(&self.tx).await? > 0)
    }

    async fn any_run(&self, id: RunId) -> Result<Run, StoreError> {
        let found = run::Entity::find_by_id(id.to_string()).one(&self.tx).await?;
        let found = found.ok_or_else(|| rows::inconsistent("runs", format_args!("{id} is missing")))?;
        rows::run(&found)
    }
}

impl Write {
    /// Delegates a permitted call to a child run, and commits. One transaction writes the child's thread, its
    /// user message, its run, which the server starts, and the call, which has no lease from then on. A retry
    /// after an unconfirmed commit finds the existing child run.
    pub async fn delegate(
        self,
        permit: &Permit,
        assignment: &Assignment,
        limits: AgentLimits,
    ) -> Result<DelegateOutcome, StoreError> {
        let (id, execution) = (permit.tool_call_id(), permit.execution().id.to_string());
        let locked =
            self.lock_row(id).await?.filter(|locked| locked.call.exec_id.as_ref() == Some(&execution));
        let Some(LockedRow { call: row, thread, .. }) = locked else { return Ok(DelegateOutcome::Lost) };
        if row.child_run_id.is_some() {
            return Ok(DelegateOutcome::Started);
        }
        if row.state != StateKind::Executing.word() {
            return Ok(DelegateOutcome::Lost);
        }
        if row.cancel_requested_at.is_some() || !self.is_current(&thread, &row).await? {
            return Ok(DelegateOutcome::Unwanted);
        }
        if self.agent_depth(&thread, limits.depth).await? >= limits.depth {
            return Ok(DelegateOutcome::TooDeep);
        }
        // Other threads of the session create sub-agents below the same root. They wait until this
        // transaction ends.
        self.lock_session(&thread).await?;
        if self.agents(&row.run_id).await? >= i64::from(limits.per_run) {
            return Ok(DelegateOutcome::TooMany);
        }
        let child = self.begin_child(&thread, &row, assignment).await?;
        let delegated = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::ChildRunId, Expr::value(child.to_string()))
            .col_expr(tool_call::Column::LeaseUntil, Expr::value(None::<i64>))
            .filter(tool_call::Column::ToolCallId.eq(id.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Executing.word()))
            .filter(tool_call::Column::ExecId.eq(execution))
            .filter(tool_call::Column::ChildRunId.is_null())
            .exec(&self.tx)
            .await?;
        if delegated.rows_affected == 0 {
            // Without a commit, the child run does not exist either.
            return Ok(DelegateOutcome::Lost);
        }
        self.commit().await?;
        Ok(DelegateOutcome::Started)
    }

    /// Creates the child thread of a call with its run. The child has the user of the thread, the model and
    /// the roles of the call's run, and no tools beyond those of that run.
    async fn begin_child(
        &self,
        thread: &Thread,
        row: &tool_call::Model,
        assignment: &Assignment,
    ) -> Result<RunId, StoreError> {
        let Assignment { title, task, instructions, tools } = assignment.clone();
        let owner = Principal {
            tenant_id: thread.tenant_id.clone(),
            user_id: thread.user_id.clone(),
            roles: Vec::new(),
        };
        let new = NewThread { title, client_id: None, parent: Some(thread.clone()) };
        let child = self.create_thread(&owner, new).await?;
        let RunOptions { model, tools: of_parent, roles, .. } =
            self.any_run(rows::id("tool_calls", &row.run_id)?).await?.options;
        let options = RunOptions { model, tools: of_parent, instructions, roles: Vec::new() };
        let options = options.on_behalf_of(roles, tools);
        let question = Question::New {
            earlier: Vec::new(),
            message: UserWords { text: without_nul(&task), client_id: None },
        };
        Ok(self.insert_run(&child, question, options, None).await?.run.id)
    }

    /// Cancels the child run of a delegated call if the call is to stop, or returns `None`. A running child
    /// run is asked to stop, and a waiting one is cancelled at once, like any run. Returns the executing
    /// calls of the child run.
    pub async fn stop_child(&self, delegated: DelegatedCall) -> Result<Option<Vec<ToolCallId>>, StoreError> {
        let thread = self.lock_thread(self.any_run(delegated.child).await?.thread_id).await?;
        let stops = Expr::cust(UNWANTED).and(Expr::cust(CONTINUES));
        if !self.found_now(delegated.id, stops).await? {
            return Ok(None);
        }
        let run = self.any_run(delegated.child).await?;
        self.cancel_run(&thread, &run, &thread.actor()).await
    }

    /// Returns the child run of a delegated call if the child run has ended and the call has not.
    pub async fn ended_child(&self, delegated: DelegatedCall) -> Result<Option<EndedChild>, StoreError> {
        let child = self.lock_thread(self.any_run(delegated.child).await?.thread_id).await?;
        let Some(locked) = self.lock_call(delegated.id).await? else { return Ok(None) };
        if !self.found_now(delegated.id, Expr::cust(ENDED)).await? {
            return Ok(None);
        }
        let call = locked.call;
        let run = self.any_run(delegated.child).await?;
        let steps = self.steps(&child, run.assistant_message_id).await?;
        let last = steps.iter().rfind(|step| step.status == StepStatus::Complete);
        let texts = last.iter().flat_map(|step| &step.parts).filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let words = texts.collect();
        Ok(Some(EndedChild { call, run, words }))
    }

    /// Ends a delegated call with the end of its child run, and lets the server resume the call's run.
    /// Returns false if the call has ended, or has another child run.
    pub async fn settle_child(
        &self,
        ended: &EndedChild,
        outcome: &Outcome,
        result: String,
    ) -> Result<bool, StoreError> {
        let EndedChild { call, run, .. } = ended;
        let Some(locked) = self.lock_row(call.id).await? else { return Ok(false) };
        let known = self.known::<Executing>(outcome, &result);
        let Settling { moved, event } = known.unwrap_or_else(|| self.unknown(result));
        let moved = moved.only(tool_call::Column::ChildRunId.eq(run.id.to_string()));
        let actor = locked.call.decided_by.as_deref().unwrap_or(system::POLICY);
        let cause = MoveCause::ChildRun { child_run_id: run.id };
        if !self.move_row(&locked, moved, event, actor, cause).await? {
            return Ok(false);
        }
        self.set_server_resumes(&locked.thread, call.run_id).await?;
        Ok(true)
    }
}
