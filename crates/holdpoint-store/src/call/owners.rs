//! Calls with an owner: an external service that accepted the call, and whose outcome comes later. Such a call has a
//! result deadline in place of a lease. Its execution id does not change, so a report settles it as the process of a
//! lease does: with [`Write::settle`], also after the deadline.
//!
//! The work of an MCP server is polled, by one process at a time. The polls of a task or of a round end nothing: if they
//! stop, another process continues them. To send the call again, its process takes the round out of the row. If the
//! polls stop after that, the outcome is unknown.
//!
//! An executing call has a lease, a child run or an owner (`ExecutedBy`). Before the commit of `delegate` nothing has
//! started; after it, only the child or a fence ends the call. After the commit of `hand_over`, only a report, the end
//! of a task, the deadline or a fence does.

use crate::call::permit::Conversation;
use crate::entity::{thread, tool_call};
use crate::event::new_event::{OfCall, Subject};
use crate::sweep::sweep_work::{due_at, in_state, is_unpolled};
use crate::{
    LockedRow, Read, RenewalOutcome, SettleOutcome, StoreError, Thread, TimedRead, Write, sql::rows,
};
use holdpoint_core::call::{Execution, Outcome, StateKind, ToolCall};
use holdpoint_core::event::{EventType, system};
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::owner::{NextAction, Owner, TaskId};
use sea_orm::sea_query::{Expr, ExprTrait, Query};
use sea_orm::{
    ColumnTrait, Condition, EntityName, EntityTrait, QueryFilter, QueryOrder, QuerySelect, UpdateMany,
};
use serde_json::json;
use std::time::Duration;

/// Maximum number of calls whose polls one look finds. The next look finds the rest.
const PAGE: u64 = 100;

/// The right to poll the work of a call.
#[derive(Debug, Clone)]
pub struct Polls {
    pub call: ToolCallId,
    pub execution: Execution,
    /// The name of the holder. Each process that takes the polls over has another one.
    by: String,
}

/// A call whose work this process polls.
#[derive(Debug)]
pub struct PolledCall {
    pub polls: Polls,
    pub call: ToolCall,
    pub conversation: Conversation,
    /// The name of the server in the configuration.
    pub server: String,
    /// How the call continues. `None` if a process took a round to send the call again, and stored no answer.
    pub next: Option<NextAction>,
}

impl Polls {
    /// Returns the polls of the process that hands the call over.
    pub fn first(call: ToolCallId, execution: Execution) -> Self {
        Self { call, execution, by: execution.id.to_string() }
    }
}

impl Read {
    /// Returns the call of these polls, if this process still holds them.
    pub async fn polled_call(&self, polls: Polls) -> Result<Option<PolledCall>, StoreError> {
        let found = tool_call::Entity::find_by_id(polls.call.to_string())
            .filter(tool_call::Column::ExecId.eq(polls.execution.id.to_string()))
            .filter(tool_call::Column::PolledBy.eq(&polls.by))
            .find_both_related(thread::Entity);
        let Some((row, thread)) = found.one(&self.tx).await? else { return Ok(None) };
        let Some(server) = row.mcp_server.clone() else { return Ok(None) };
        let next = match (row.task_id.clone().and_then(TaskId::new), &row.input_round) {
            (Some(task), _) => Some(NextAction::Task(task)),
            (None, Some(round)) => Some(NextAction::Round(rows::json("tool_calls", round)?)),
            (None, None) => None,
        };
        let call = rows::call(row, None)?;
        let conversation = Thread::of(thread)?.conversation(call.run_id);
        Ok(Some(PolledCall { polls, call, conversation, server, next }))
    }
}

impl Read {
    /// Whether this server works on a call as a task, or in rounds.
    pub async fn has_work_at(&self, server: &str) -> Result<bool, StoreError> {
        let found: Option<String> = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .filter(in_state(StateKind::Executing))
            .filter(due_at().is_not_null())
            .filter(tool_call::Column::PolledUntil.is_not_null())
            .filter(tool_call::Column::McpServer.eq(server))
            .into_tuple()
            .one(&self.tx)
            .await?;
        Ok(found.is_some())
    }
}

impl TimedRead {
    /// Returns calls whose work at these servers no process polls, the longest alone first.
    pub async fn unpolled_calls(&self, servers: &[String]) -> Result<Vec<ToolCallId>, StoreError> {
        let found: Vec<String> = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .filter(is_unpolled(Expr::value(self.now.as_micros()), servers))
            .order_by_asc(due_at())
            .limit(PAGE)
            .into_tuple()
            .all(&self.tx)
            .await?;
        found.iter().map(|id| rows::id("tool_calls", id)).collect()
    }
}

impl Write {
    /// Hands an execution over to the owner of the call, and commits. If the owner is the work of an MCP server, the first
    /// process that polls it is this one, for the time of `lease`. Returns false if the execution does not hold the call: it was
    /// settled, by a report that came first or without this execution. A retry after an unconfirmed commit finds the
    /// owner.
    pub async fn hand_over(
        self,
        call: ToolCallId,
        execution: Execution,
        owner: &Owner,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let own = execution.id.to_string();
        let locked = self.lock_row(call).await?.filter(|it| it.call.exec_id.as_ref() == Some(&own));
        let Some(locked) = locked else { return Ok(false) };
        if locked.call.result_deadline.is_some() {
            return Ok(true);
        }
        let until = self.now.plus(owner.within);
        let (server, next) = owner.work.as_ref().map(|work| (&work.server, &work.next)).unzip();
        let polls = next.map(|_| Polls::first(call, execution));
        let (task_id, input_round) = columns(next);
        let polled_until = polls.as_ref().map(|_| self.now.plus(lease).as_micros());
        let handed = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::ResultDeadline, Expr::value(until.as_micros()))
            .col_expr(tool_call::Column::LeaseUntil, Expr::value(None::<i64>))
            .col_expr(tool_call::Column::McpServer, Expr::value(server.cloned()))
            .col_expr(tool_call::Column::TaskId, Expr::value(task_id))
            .col_expr(tool_call::Column::InputRound, Expr::value(input_round))
            .col_expr(tool_call::Column::PolledBy, Expr::value(polls.map(|polls| polls.by)))
            .col_expr(tool_call::Column::PolledUntil, Expr::value(polled_until))
            .filter(tool_call::Column::ToolCallId.eq(call.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Executing.word()))
            .filter(tool_call::Column::ExecId.eq(own))
            .filter(tool_call::Column::ChildRunId.is_null())
            .exec(&self.tx)
            .await?;
        if handed.rows_affected == 0 {
            return Ok(false);
        }
        let LockedRow { call: row, thread, .. } = &locked;
        let (tool_name, attempt) = (row.name.clone(), execution.attempt);
        let data = EventData::Accepted { tool_name, attempt, result_deadline: until };
        let of_call = OfCall { id: call, tool: &row.name, is_held: row.held };
        let subject = Subject { thread, run_id: rows::id("tool_calls", &row.run_id)?, call: Some(of_call) };
        let actor = row.decided_by.as_deref().unwrap_or(system::POLICY);
        self.event(EventType::ToolAccepted, actor, &subject, data);
        self.commit().await?;
        Ok(true)
    }

    /// Takes the polls of a call over, if no process polls its work.
    pub async fn take_polls(
        &self,
        call: ToolCallId,
        lease: Duration,
    ) -> Result<Option<PolledCall>, StoreError> {
        let by = self.clock.uuid().to_string();
        let taken = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::PolledBy, Expr::value(&by))
            .col_expr(tool_call::Column::PolledUntil, Expr::value(self.now.plus(lease).as_micros()))
            .filter(tool_call::Column::ToolCallId.eq(call.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Executing.word()))
            .filter(tool_call::Column::PolledUntil.lte(self.now.as_micros()))
            .exec(&self.tx)
            .await?;
        if taken.rows_affected == 0 {
            return Ok(None);
        }
        let Some(execution) = self.any_call(call).await?.and_then(|call| call.execution()) else {
            return Ok(None);
        };
        self.polled_call(Polls { call, execution, by }).await
    }

    /// Keeps the polls of a call for the time of `lease`, or ends them now if it is zero.
    pub async fn renew_polls(&self, polls: &Polls, lease: Duration) -> Result<RenewalOutcome, StoreError> {
        self.name_commit("call.renewed", Some(polls.call));
        let renewal = Query::update()
            .table(tool_call::Entity.table_ref())
            .value(tool_call::Column::PolledUntil, self.now.plus(lease).as_micros())
            .and_where(tool_call::Column::ToolCallId.eq(polls.call.to_string()))
            .and_where(tool_call::Column::ExecId.eq(polls.execution.id.to_string()))
            .and_where(tool_call::Column::State.eq(StateKind::Executing.word()))
            .and_where(tool_call::Column::PolledBy.eq(&polls.by))
            .returning_col(tool_call::Column::CancelRequestedAt)
            .to_owned();
        self.renewed(&renewal).await
    }

    /// Ends the polls of every call. Only for a database with one process, before that process starts any work. Writes
    /// nothing where there are none, because the database may be read-only.
    pub(crate) async fn end_all_polls(&self) -> Result<(), StoreError> {
        let polled = Condition::all()
            .add(in_state(StateKind::Executing))
            .add(due_at().is_not_null())
            .add(tool_call::Column::PolledUntil.gt(self.now.as_micros()));
        let any = tool_call::Entity::find().select_only().column(tool_call::Column::ToolCallId);
        if any.filter(polled.clone()).into_tuple::<String>().one(&self.tx).await?.is_none() {
            return Ok(());
        }
        tool_call::Entity::update_many()
            .col_expr(tool_call::Column::PolledUntil, Expr::value(self.now.as_micros()))
            .filter(polled)
            .exec(&self.tx)
            .await?;
        Ok(())
    }

    /// Takes the round out of the row before the call is sent again, and commits. So the call is sent at most once for each
    /// round. Returns false if this process does not hold the polls any more, or a cancel is requested. A retry after an
    /// unconfirmed commit finds the round taken.
    pub async fn take_round(self, polls: &Polls) -> Result<bool, StoreError> {
        let taken = self
            .polled_update(polls)
            .col_expr(tool_call::Column::InputRound, Expr::value(None::<String>))
            .filter(tool_call::Column::InputRound.is_not_null())
            .filter(tool_call::Column::CancelRequestedAt.is_null())
            .exec(&self.tx)
            .await?;
        if taken.rows_affected == 0 {
            let found = self.polled_call(polls.clone()).await?;
            return Ok(found.is_some_and(|it| it.next.is_none() && it.call.end().is_none()));
        }
        self.commit().await?;
        Ok(true)
    }

    /// Stores how a call continues that was sent again, and commits. Returns false if this process does not hold the polls
    /// any more. A retry after an unconfirmed commit finds it stored.
    pub async fn store_next(self, polls: &Polls, next: &NextAction) -> Result<bool, StoreError> {
        let (task_id, input_round) = columns(Some(next));
        let stored = self
            .polled_update(polls)
            .col_expr(tool_call::Column::TaskId, Expr::value(task_id))
            .col_expr(tool_call::Column::InputRound, Expr::value(input_round))
            .filter(tool_call::Column::TaskId.is_null())
            .filter(tool_call::Column::InputRound.is_null())
            .exec(&self.tx)
            .await?;
        if stored.rows_affected == 0 {
            let found = self.polled_call(polls.clone()).await?;
            return Ok(found.is_some_and(|it| it.next.as_ref() == Some(next)));
        }
        self.commit().await?;
        Ok(true)
    }

    /// Builds an update of the call of these polls, while this process holds them.
    fn polled_update(&self, polls: &Polls) -> UpdateMany<tool_call::Entity> {
        tool_call::Entity::update_many()
            .filter(tool_call::Column::ToolCallId.eq(polls.call.to_string()))
            .filter(tool_call::Column::ExecId.eq(polls.execution.id.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Executing.word()))
            .filter(tool_call::Column::PolledBy.eq(&polls.by))
    }

    /// Settles a call with the outcome of its work. The server resumes the run: no turn and no client waits. That the
    /// outcome is unknown counts only while this process holds the polls: another process may know it.
    pub async fn settle_polled(
        &self,
        polls: &Polls,
        outcome: &Outcome,
        result: String,
    ) -> Result<SettleOutcome, StoreError> {
        let Some(locked) = self.lock_row(polls.call).await? else { return Ok(SettleOutcome::Nothing) };
        let is_unknown = matches!(outcome, Outcome::Interrupted | Outcome::InterruptedWith(_));
        if is_unknown && locked.call.polled_by.as_ref() != Some(&polls.by) {
            return Ok(SettleOutcome::Nothing);
        }
        let settled = self.settle_row(&locked, polls.execution, outcome, result, Duration::ZERO).await?;
        if matches!(settled, SettleOutcome::Ended(_)) && locked.call.finished_at.is_none() {
            self.set_server_resumes(&locked.thread, rows::id("tool_calls", &locked.call.run_id)?).await?;
        }
        Ok(settled)
    }

    /// Ends a call whose result deadline is reached: its outcome is unknown, and the server resumes its run.
    pub(crate) async fn end_unreported(&self, locked: &LockedRow) -> Result<bool, StoreError> {
        let reached = tool_call::Column::ResultDeadline.lte(self.now.as_micros());
        if !self.interrupt(locked, reached, system::SWEEPER).await? {
            return Ok(false);
        }
        self.set_server_resumes(&locked.thread, rows::id("tool_calls", &locked.call.run_id)?).await?;
        Ok(true)
    }
}

/// Returns the columns that say how a call continues: the id of a task, and a round.
fn columns(next: Option<&NextAction>) -> (Option<String>, Option<String>) {
    match next {
        Some(NextAction::Task(task)) => (Some(task.as_str().to_owned()), None),
        Some(NextAction::Round(round)) => (None, Some(json!(round).to_string())),
        None => (None, None),
    }
}
