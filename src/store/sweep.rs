//! What time, crashes and stopped processes leave behind: found, and moved on by statements that look again at
//! what they found.

use super::entity::{run, tool_call};
use super::{StoreError, Thread, Write, rows};
use crate::domain::call::{Outcome, State, ToolCall, words};
use crate::domain::event::{EventType, system};
use crate::domain::id::{RunId, ToolCallId};
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use std::time::Duration;

/// Rows that one look finds.
const PAGE: u64 = 100;

/// What a start found left behind by an earlier process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Calls whose outcome nobody knows now.
    pub(crate) interrupted_calls: u64,
    /// Turns closed as interrupted.
    pub(crate) closed_turns: u64,
}

/// What a sweep did with a call.
#[derive(Debug)]
pub(crate) enum Swept {
    /// It stands well, or somebody else moved it on.
    Nothing,
    /// Nobody had answered in time.
    Expired,
    /// A person had said yes and nobody began in time.
    NotStarted,
    /// Who ran it went away.
    Interrupted,
    /// A person said yes a while ago and nobody has begun: it may be claimed.
    Ready(Thread, Box<ToolCall>),
}

impl Write {
    /// Calls behind this one, in the order of their ids, that may have to be moved on. None: there are no more.
    pub(crate) async fn calls_to_sweep(
        &self,
        behind: Option<ToolCallId>,
        lease: Duration,
    ) -> Result<Vec<ToolCallId>, StoreError> {
        let now = self.now.as_micros();
        let is = |state: &str| tool_call::Column::State.eq(state);
        let overdue = is("pending").and(tool_call::Column::ExpiresAt.lte(now));
        let silent = is("executing").and(tool_call::Column::LeaseUntil.lt(now));
        let late = is("approved").and(tool_call::Column::StartDeadline.lte(now));
        let waiting = is("approved").and(tool_call::Column::DecidedAt.lte(self.now.minus(lease).as_micros()));
        let mut found = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ToolCallId)
            .filter(overdue.or(silent).or(late).or(waiting))
            .order_by_asc(tool_call::Column::ToolCallId)
            .limit(PAGE);
        if let Some(behind) = behind {
            found = found.filter(tool_call::Column::ToolCallId.gt(behind.to_string()));
        }
        let ids: Vec<String> = found.into_tuple().all(&self.tx).await?;
        ids.iter().map(|id| rows::id("tool_calls", id)).collect()
    }

    /// Moves a call on as time demands.
    pub(crate) async fn sweep_call(&self, id: ToolCallId, lease: Duration) -> Result<Swept, StoreError> {
        let found = tool_call::Entity::find_by_id(id.to_string()).all(&self.tx).await?;
        let Some(row) = found.first() else { return Ok(Swept::Nothing) };
        let late = row.start_deadline.is_some_and(|at| at <= self.now.as_micros());
        let waits = row.decided_at.is_some_and(|at| at <= self.now.minus(lease).as_micros());
        let Some(call) = self.with_decisions(found).await?.pop() else { return Ok(Swept::Nothing) };
        let thread = self.any_thread(call.thread_id).await?;
        let (moved, swept) = match &call.state {
            State::Pending => (self.expire(&thread, &call).await?, Swept::Expired),
            State::Executing(..) => {
                let lapsed = tool_call::Column::LeaseUntil.lt(self.now.as_micros());
                (self.interrupt(lapsed, &call).await?, Swept::Interrupted)
            }
            State::Approved(_) if late => (self.not_started(&thread, &call).await?, Swept::NotStarted),
            State::Approved(_) if waits => (true, Swept::Ready(thread, Box::new(call))),
            _ => (false, Swept::Nothing),
        };
        Ok(if moved { swept } else { Swept::Nothing })
    }

    /// Says of a call that is executing and stands so that nobody knows how it went.
    async fn interrupt(&self, standing: SimpleExpr, call: &ToolCall) -> Result<bool, StoreError> {
        let Some(execution) = call.execution() else { return Ok(false) };
        let unknown = &Outcome::Interrupted;
        let result = unknown.words(&call.input, call.effective_input(), usize::MAX);
        let standing = tool_call::Column::State.eq("executing").and(standing);
        self.settle_where(standing, Some(system::SWEEPER), call.id, execution, unknown, result).await
    }

    /// Closes an approved call whose time to begin is over.
    async fn not_started(&self, thread: &Thread, call: &ToolCall) -> Result<bool, StoreError> {
        let closed = |state, words: &str, claims: SimpleExpr| {
            self.ended(state, words.to_owned())
                .only(tool_call::Column::State.eq("approved"))
                .only(tool_call::Column::StartDeadline.lte(self.now.as_micros()))
                .only(claims)
        };
        let failed = closed("failed", words::NOT_STARTED, tool_call::Column::ExecAttempt.eq(0));
        if self.closed(thread, call, failed, EventType::ToolFailed, system::SWEEPER).await? {
            return Ok(true);
        }
        // One that was begun before may have had its effect then.
        let interrupted = closed("interrupted", words::INTERRUPTED, tool_call::Column::ExecAttempt.gt(0));
        self.closed(thread, call, interrupted, EventType::ToolInterrupted, system::SWEEPER).await
    }

    /// Interrupts the calls of a run whose leases are over.
    pub(super) async fn interrupt_lapsed(&self, run: RunId) -> Result<(), StoreError> {
        let lapsed = tool_call::Column::LeaseUntil.lt(self.now.as_micros());
        let of_run = tool_call::Column::RunId.eq(run.to_string());
        for call in self.executing(of_run.and(lapsed.clone())).await? {
            self.interrupt(lapsed.clone(), &call).await?;
        }
        Ok(())
    }

    async fn executing(&self, which: SimpleExpr) -> Result<Vec<ToolCall>, StoreError> {
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::State.eq("executing"))
            .filter(which)
            .all(&self.tx)
            .await?;
        found.into_iter().map(|row| rows::call(row, None)).collect()
    }

    /// Runs behind this one, in the order of their ids, with a turn whose lease is over. None: there are no more.
    pub(crate) async fn turns_to_sweep(&self, behind: Option<RunId>) -> Result<Vec<RunId>, StoreError> {
        let mut found = run::Entity::find()
            .select_only()
            .column(run::Column::RunId)
            .filter(run::Column::Status.eq("running"))
            .filter(run::Column::LeaseUntil.lt(self.now.as_micros()))
            .order_by_asc(run::Column::RunId)
            .limit(PAGE);
        if let Some(behind) = behind {
            found = found.filter(run::Column::RunId.gt(behind.to_string()));
        }
        let ids: Vec<String> = found.into_tuple().all(&self.tx).await?;
        ids.iter().map(|id| rows::id("runs", id)).collect()
    }

    /// Closes a turn whose lease is over. False if it is alive, or somebody else did.
    pub(crate) async fn sweep_turn(&self, id: RunId) -> Result<bool, StoreError> {
        let Some(row) = run::Entity::find_by_id(id.to_string()).one(&self.tx).await? else {
            return Ok(false);
        };
        let run = rows::run(row)?;
        let thread = self.any_thread(run.thread_id).await?;
        self.close_dead_turn(&thread, &run).await
    }

    /// Puts in order what an earlier process left behind, where only one process serves and before it begins
    /// anything: what was running may have happened, and nobody runs it again.
    pub(crate) async fn recover(&self) -> Result<Recovered, StoreError> {
        let any = || Expr::value(true);
        let mut interrupted_calls = 0;
        for call in self.executing(any()).await? {
            interrupted_calls += u64::from(self.interrupt(any(), &call).await?);
        }
        Ok(Recovered { interrupted_calls, closed_turns: self.close_all_turns().await? })
    }
}
