//! Calls and turns that deadlines, crashes and stopped processes leave open. Each statement that moves one of
//! them checks its state again.

use crate::call::calls::of_run;
use crate::call::executions::ReapOutcome;
use crate::call::permit::{IdempotencyKey, Requester};
use crate::call::transitions::{Approved, Failed, Interrupted};
use crate::entity::{run, thread, tool_call};
use crate::sweep::sweep_work::{DUE_AT, due_at, in_state, is_dead, is_doubtful};
use crate::{LockedRow, LockedThread, MoveReason, StoreError, TimedRead, Write, sql::rows};
use holdpoint_core::call::{Execution, State, StateKind, ToolCall};
use holdpoint_core::call_times::CallTimes;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::{EventType, system};
use holdpoint_core::id::{RunId, ToolCallId};
use holdpoint_core::text::model_texts;
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{
    ColumnTrait, EntityTrait, FromQueryResult, JoinType, QueryFilter, QueryOrder, QuerySelect, RelationTrait,
    Select,
};
use std::time::Duration;

/// Maximum number of rows that one query returns.
const PAGE: u64 = 100;

/// The work of an earlier process that a start found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveredWork {
    /// Calls whose outcome is unknown.
    pub interrupted_calls: u64,
    /// Calls that may be claimed again.
    pub repeated_calls: u64,
    /// Turns closed as interrupted.
    pub closed_turns: u64,
}

/// A call that was due at the time of the query.
#[derive(Debug, Clone, Copy)]
pub struct DueCall {
    pub id: ToolCallId,
    /// Since when the call is due, in microseconds since 1970.
    at: i64,
}

impl DueCall {
    /// Matches the calls after this one, in the order of [`due_at`].
    fn after_it(&self) -> SimpleExpr {
        let same_moment =
            ExprTrait::eq(due_at(), self.at).and(tool_call::Column::ToolCallId.gt(self.id.to_string()));
        ExprTrait::gte(due_at(), self.at).and(ExprTrait::gt(due_at(), self.at).or(same_moment))
    }
}

/// Orders calls by [`due_at`].
fn in_order(calls: Select<tool_call::Entity>, after: Option<&DueCall>) -> Select<tool_call::Entity> {
    let calls = calls.order_by_asc(due_at()).order_by_asc(tool_call::Column::ToolCallId).limit(PAGE);
    match after {
        Some(after) => calls.filter(after.after_it()),
        None => calls,
    }
}

/// A recently interrupted call.
#[derive(Debug)]
pub struct InterruptedCall {
    pub due: DueCall,
    pub tool_name: String,
    /// The hash of the tool's schema when the model made the call.
    pub schema_hash: String,
    /// The key by which the tool knows the call.
    pub key: IdempotencyKey,
    pub execution: Execution,
}

#[derive(FromQueryResult)]
struct InterruptedRow {
    tool_call_id: String,
    name: String,
    schema_hash: String,
    exec_id: String,
    exec_attempt: i32,
    started_at: i64,
    due_at: i64,
    tenant_id: String,
    user_id: String,
}

impl InterruptedCall {
    fn of(row: InterruptedRow) -> Result<Self, StoreError> {
        let id = rows::id("tool_calls", &row.tool_call_id)?;
        Ok(Self {
            due: DueCall { id, at: row.due_at },
            tool_name: row.name,
            schema_hash: row.schema_hash,
            key: IdempotencyKey::of(id, Requester { tenant_id: row.tenant_id, user_id: row.user_id }),
            execution: Execution {
                id: rows::id("tool_calls", &row.exec_id)?,
                attempt: row.exec_attempt,
                started_at: Timestamp::from_micros(row.started_at),
            },
        })
    }
}

/// The result of a sweep of a call.
#[derive(Debug)]
pub enum Swept {
    /// The call is not due, or another transaction moved it.
    Nothing,
    /// The pending call expired.
    Expired,
    /// The pending call still waits for a decision.
    Noticed {
        /// Further roles may decide it.
        escalated: bool,
        /// People were reminded of its deadline.
        reminded: bool,
    },
    /// The approved call did not start in time.
    NotStarted,
    /// The execution lost its lease, and the outcome is unknown.
    Interrupted,
    /// The owner of the call did not report in time, and the outcome is unknown.
    Unreported,
    /// The execution lost its lease, and the call may be claimed again.
    Repeatable,
    /// The call has been approved for a while and unclaimed: it may be claimed.
    Ready(Box<ToolCall>),
}

impl TimedRead {
    /// Returns the calls after this one that are due for this reason, the longest due first. An empty list
    /// means that no more exist.
    pub async fn due_calls(
        &self,
        due: MoveReason,
        lease: Duration,
        after: Option<&DueCall>,
    ) -> Result<Vec<DueCall>, StoreError> {
        // One query for all reasons would scan the whole table.
        let found = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .column_as(due_at(), DUE_AT)
            .filter(due.matches(Expr::value(self.now.as_micros()), lease));
        let found: Vec<(String, i64)> = in_order(found, after).into_tuple().all(&self.tx).await?;
        found.iter().map(|(id, at)| Ok(DueCall { id: rows::id("tool_calls", id)?, at: *at })).collect()
    }

    /// Returns the calls of these tools after this one that were interrupted within this time, oldest end
    /// first. An empty list means that no more exist.
    pub async fn doubtful_calls(
        &self,
        tools: &[String],
        within: Duration,
        after: Option<&DueCall>,
    ) -> Result<Vec<InterruptedCall>, StoreError> {
        let found = tool_call::Entity::find()
            .select_only()
            .columns([tool_call::Column::ToolCallId, tool_call::Column::Name, tool_call::Column::SchemaHash])
            .column(tool_call::Column::ExecId)
            .columns([tool_call::Column::ExecAttempt, tool_call::Column::StartedAt])
            .column_as(due_at(), DUE_AT)
            .columns([thread::Column::TenantId, thread::Column::UserId])
            .join(JoinType::InnerJoin, tool_call::Relation::Thread.def())
            .filter(is_doubtful(Expr::value(self.now.as_micros()), within))
            .filter(tool_call::Column::Name.is_in(tools));
        in_order(found, after)
            .into_model::<InterruptedRow>()
            .all(&self.tx)
            .await?
            .into_iter()
            .map(InterruptedCall::of)
            .collect()
    }

    /// Returns the runs after this one, in the order of their ids, with a turn whose lease is over. An empty
    /// list means that no more exist.
    pub async fn turns_to_sweep(&self, after: Option<RunId>) -> Result<Vec<RunId>, StoreError> {
        let lapsed = run::Entity::find().filter(is_dead(Expr::value(self.now.as_micros())));
        self.next_ids(lapsed, run::Column::RunId, after, PAGE).await
    }
}

impl Write {
    /// Moves a call whose deadline or lease is over.
    pub async fn sweep_call(&self, id: ToolCallId, times: &CallTimes) -> Result<Swept, StoreError> {
        let Some(locked) = self.lock_row(id).await? else { return Ok(Swept::Nothing) };
        let row = &locked.call;
        let late = row.start_deadline.is_some_and(|at| at <= self.now.as_micros());
        let waits = row.decided_at.is_some_and(|at| at <= self.now.minus(times.lease).as_micros());
        if row.state == StateKind::Executing.word() && row.result_deadline.is_some() {
            return Ok(if self.end_unreported(&locked).await? { Swept::Unreported } else { Swept::Nothing });
        }
        if row.state == StateKind::Executing.word() {
            let lapsed = tool_call::Column::LeaseUntil.lt(self.now.as_micros());
            return Ok(match self.reap(&locked, lapsed, times.start_deadline, system::SWEEPER).await? {
                ReapOutcome::Nothing => Swept::Nothing,
                ReapOutcome::Repeatable => Swept::Repeatable,
                ReapOutcome::Interrupted => Swept::Interrupted,
            });
        }
        let LockedRow { call: row, thread, .. } = locked;
        let Some(call) = self.with_decisions(vec![row]).await?.pop() else { return Ok(Swept::Nothing) };
        let (moved, swept) = match &call.state {
            State::Pending if call.expires_at.is_some_and(|at| at > self.now) => {
                let escalated = self.escalate(&thread, &call).await?;
                let reminded = self.remind(&thread, &call).await?;
                (escalated || reminded, Swept::Noticed { escalated, reminded })
            }
            State::Pending => (self.expire(&thread, &call, times.resume_on_expiry).await?, Swept::Expired),
            State::Approved(_) if late => (self.not_started(&thread, &call).await?, Swept::NotStarted),
            State::Approved(_) if waits => (true, Swept::Ready(Box::new(call))),
            _ => (false, Swept::Nothing),
        };
        Ok(if moved { swept } else { Swept::Nothing })
    }

    /// Closes an approved call that the policy now forbids. Returns false if the call is no longer approved.
    pub async fn block(&self, thread: &LockedThread, call: &ToolCall, why: &str) -> Result<bool, StoreError> {
        let failed = self.ended::<Approved, Failed>(format!("{} {why}.", model_texts::BLOCKED_LATER));
        if self.closed(thread, call, failed, EventType::ToolFailed, system::POLICY).await? {
            return Ok(true);
        }
        // A call that was claimed before may have had its effect then.
        let interrupted = self.ended::<Approved, Interrupted>(call.unknown_outcome());
        self.closed(thread, call, interrupted, EventType::ToolInterrupted, system::POLICY).await
    }

    /// Closes an approved call whose start deadline is reached.
    async fn not_started(&self, thread: &LockedThread, call: &ToolCall) -> Result<bool, StoreError> {
        let late = || tool_call::Column::StartDeadline.lte(self.now.as_micros());
        let failed = self.ended::<Approved, Failed>(model_texts::NOT_STARTED.to_owned()).only(late());
        if self.closed(thread, call, failed, EventType::ToolFailed, system::SWEEPER).await? {
            return Ok(true);
        }
        // A call that was claimed before may have had its effect then.
        let interrupted = self.ended::<Approved, Interrupted>(call.unknown_outcome()).only(late());
        self.closed(thread, call, interrupted, EventType::ToolInterrupted, system::SWEEPER).await
    }

    /// Interrupts the calls of a run whose leases are over. Leaves the idempotent calls to the sweeper.
    pub(crate) async fn interrupt_lapsed(&self, run: RunId) -> Result<(), StoreError> {
        let lapsed = tool_call::Column::LeaseUntil.lt(self.now.as_micros());
        let of_run = of_run(run).and(lapsed.clone());
        for row in self.executing(of_run.and(tool_call::Column::Idempotent.eq(false))).await? {
            let locked = self.lock_row(rows::id("tool_calls", &row.tool_call_id)?).await?;
            if let Some(locked) = locked {
                self.interrupt(&locked, lapsed.clone(), system::SWEEPER).await?;
            }
        }
        Ok(())
    }

    /// Returns these executing calls, of those that no child run executes.
    async fn executing(&self, which: SimpleExpr) -> Result<Vec<tool_call::Model>, StoreError> {
        let found = tool_call::Entity::find()
            .filter(in_state(StateKind::Executing))
            .filter(due_at().is_not_null())
            .filter(which);
        Ok(found.all(&self.tx).await?)
    }

    /// Closes a turn whose lease is over. Returns false if the turn is alive, or another transaction closed
    /// it.
    pub async fn sweep_turn(&self, id: RunId) -> Result<bool, StoreError> {
        let Some(row) = run::Entity::find_by_id(id.to_string()).one(&self.tx).await? else {
            return Ok(false);
        };
        let run = rows::run(&row)?;
        let thread = self.lock_thread(run.thread_id).await?;
        self.close_dead_turn(&thread, &run).await
    }

    /// Recovers the work that an earlier process left open. Only for a database with one process, before that
    /// process starts any work. An executing call may have had its effect, and runs again only if it is
    /// idempotent.
    pub async fn recover(&self, start_deadline: Duration) -> Result<RecoveredWork, StoreError> {
        self.end_all_polls().await?;
        let any = || Expr::value(true);
        let (mut interrupted_calls, mut repeated_calls) = (0, 0);
        // A call that a child run or an owner executes continues with it. A worker does not stop with the server: it
        // may be alive, and only an ended lease shows that it has died.
        let own = (tool_call::Column::ChildRunId.is_null())
            .and(tool_call::Column::ResultDeadline.is_null())
            .and(tool_call::Column::ByWorker.eq(false));
        for row in self.executing(own).await? {
            let locked = self.lock_row(rows::id("tool_calls", &row.tool_call_id)?).await?;
            let Some(locked) = locked else { continue };
            match self.reap(&locked, any(), start_deadline, system::SWEEPER).await? {
                ReapOutcome::Nothing => {}
                ReapOutcome::Repeatable => repeated_calls += 1,
                ReapOutcome::Interrupted => interrupted_calls += 1,
            }
        }
        Ok(RecoveredWork { interrupted_calls, repeated_calls, closed_turns: self.close_all_turns().await? })
    }
}
