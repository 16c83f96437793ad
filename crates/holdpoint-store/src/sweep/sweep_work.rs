//! The work of a sweep: what is due, and one statement that asks whether anything is.

use crate::endpoint::links;
use crate::entity::{link, run, sign_in, tool_call};
use crate::sign_in::sign_ins;
use crate::sql::words::literal;
use crate::{Read, Store, StoreError};
use holdpoint_core::call::StateKind;
use holdpoint_core::call_times::CallTimes;
use holdpoint_core::run::RunStatus;
use sea_orm::sea_query::{Alias, Expr, ExprTrait, Query, SimpleExpr, TableRef};
use sea_orm::{ColumnTrait, ConnectionTrait, DbBackend, EntityName, FromQueryResult};
use std::time::Duration;

/// The time of a statement on Postgres, in microseconds. `clock_timestamp` would use no index.
const STATEMENT_TIME: &str = "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::BIGINT";

/// The reason for which a call may have to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveReason {
    /// The call is executing, and its lease is over.
    Silent,
    /// The call has an owner, and its result deadline is reached.
    Unreported,
    /// The call is approved, and its start deadline is reached.
    NotStarted,
    /// The call is approved for longer than a lease, and no process has claimed it. Calls that wait for a
    /// worker are none of them.
    Unclaimed,
    /// The call is pending, and its deadline is reached.
    Unanswered,
    /// The call is pending, and people are to be reminded of its deadline.
    Unreminded,
    /// The call is pending, and further roles are to decide it.
    Unescalated,
}

impl MoveReason {
    /// Returns the column with the moment since which a call is due for this reason.
    const fn since(self) -> tool_call::Column {
        match self {
            Self::Silent => tool_call::Column::LeaseUntil,
            Self::Unreported => tool_call::Column::ResultDeadline,
            Self::NotStarted => tool_call::Column::StartDeadline,
            Self::Unclaimed => tool_call::Column::DecidedAt,
            Self::Unanswered => tool_call::Column::ExpiresAt,
            Self::Unreminded => tool_call::Column::RemindAt,
            Self::Unescalated => tool_call::Column::EscalateAt,
        }
    }

    /// Matches the calls that are due `now`. The condition on [`due_at`] finds them with the index of that column.
    pub(crate) fn matches(self, now: SimpleExpr, lease: Duration) -> SimpleExpr {
        let (state, until) = match self {
            Self::Silent | Self::Unreported => (StateKind::Executing, now),
            Self::NotStarted => (StateKind::Approved, now),
            Self::Unclaimed => (StateKind::Approved, before(now, lease)),
            Self::Unanswered | Self::Unreminded | Self::Unescalated => (StateKind::Pending, now),
        };
        let reached = ExprTrait::lte(self.since().into_expr(), until.clone());
        let due = in_state(state).and(ExprTrait::lte(due_at(), until)).and(reached);
        match self {
            Self::Unclaimed => due.and(tool_call::Column::ByWorker.into_expr().not()),
            Self::Unescalated => due.and(tool_call::Column::EscalatedAt.is_null()),
            Self::Silent | Self::Unreported | Self::NotStarted | Self::Unanswered | Self::Unreminded => due,
        }
    }
}

/// The moment since which something is to be done with a call: no later than each of its deadlines. The database computes
/// the column, so that no writer forgets it and no entity has it.
pub(crate) fn due_at() -> SimpleExpr {
    Expr::col((tool_call::Entity, Alias::new(DUE_AT)))
}

/// The name of this column.
pub(crate) const DUE_AT: &str = "due_at";

pub(crate) fn in_state(state: StateKind) -> SimpleExpr {
    ExprTrait::eq(tool_call::Column::State.into_expr(), literal(state))
}

/// Matches the calls whose work at these servers no process polls, and the calls that were sent again, at any server,
/// by a process that has died.
pub(crate) fn is_unpolled(now: SimpleExpr, servers: &[String]) -> SimpleExpr {
    let over = ExprTrait::lte(due_at(), now.clone())
        .and(ExprTrait::lte(tool_call::Column::PolledUntil.into_expr(), now));
    let sent = tool_call::Column::TaskId.is_null().and(tool_call::Column::InputRound.is_null());
    in_state(StateKind::Executing).and(over).and(tool_call::Column::McpServer.is_in(servers).or(sent))
}

/// Matches the calls that were interrupted within this time.
pub(crate) fn is_doubtful(now: SimpleExpr, within: Duration) -> SimpleExpr {
    in_state(StateKind::Interrupted).and(ExprTrait::gt(due_at(), before(now, within)))
}

/// Matches the turns with an ended lease.
pub(crate) fn is_dead(now: SimpleExpr) -> SimpleExpr {
    ExprTrait::eq(run::Column::Status.into_expr(), literal(RunStatus::Running))
        .and(ExprTrait::lt(run::Column::LeaseUntil.into_expr(), now))
}

fn before(now: SimpleExpr, time: Duration) -> SimpleExpr {
    now.sub(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}

/// The kinds of work that a sweep would find.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SweepWork {
    /// The reasons for which calls are due.
    pub calls: Vec<MoveReason>,
    /// Whether a turn has an ended lease.
    pub turns: bool,
    /// Whether a call is in doubt.
    pub doubtful: bool,
    /// Whether no process polls the work of a call.
    pub unpolled: bool,
    /// Whether the time of a link is over.
    pub links: bool,
    /// Whether the time of a sign-in is over.
    pub sign_ins: bool,
}

impl SweepWork {
    /// Whether a sweep would find nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(FromQueryResult)]
struct SweepWorkRow {
    silent: bool,
    unreported: bool,
    not_started: bool,
    unclaimed: bool,
    unanswered: bool,
    unreminded: bool,
    unescalated: bool,
    turns: bool,
    doubtful: bool,
    unpolled: bool,
    links: bool,
    sign_ins: bool,
}

impl Store {
    /// Returns which kinds of work a sweep would find, with one statement, in a process with these tools and connected
    /// to these MCP servers.
    pub async fn sweep_work(
        &self,
        times: &CallTimes,
        tools: &[String],
        servers: &[String],
    ) -> Result<SweepWork, StoreError> {
        let Read { tx } = self.read_once().await?;
        let now = || match tx.get_database_backend() {
            DbBackend::Sqlite => Expr::value(self.clock.now().as_micros()),
            _ => Expr::cust(STATEMENT_TIME),
        };
        let exists = |table: TableRef, condition: SimpleExpr| {
            Expr::exists(Query::select().expr(Expr::value(1)).from(table).and_where(condition).to_owned())
        };
        let call = |condition| exists(tool_call::Entity.table_ref(), condition);
        let due = |due: MoveReason| call(due.matches(now(), times.lease));
        let doubtful = is_doubtful(now(), times.start_deadline).and(tool_call::Column::Name.is_in(tools));
        let work = Query::select()
            .expr_as(due(MoveReason::Silent), "silent")
            .expr_as(due(MoveReason::Unreported), "unreported")
            .expr_as(due(MoveReason::NotStarted), "not_started")
            .expr_as(due(MoveReason::Unclaimed), "unclaimed")
            .expr_as(due(MoveReason::Unanswered), "unanswered")
            .expr_as(due(MoveReason::Unreminded), "unreminded")
            .expr_as(due(MoveReason::Unescalated), "unescalated")
            .expr_as(exists(run::Entity.table_ref(), is_dead(now())), "turns")
            .expr_as(call(doubtful), "doubtful")
            .expr_as(call(is_unpolled(now(), servers)), "unpolled")
            .expr_as(exists(link::Entity.table_ref(), links::is_over(now())), "links")
            .expr_as(exists(sign_in::Entity.table_ref(), sign_ins::is_over(now())), "sign_ins")
            .to_owned();
        let work = SweepWorkRow::find_by_statement(tx.get_database_backend().build(&work)).one(&tx).await?;
        let Some(work) = work else { return Ok(SweepWork::default()) };
        let calls = [
            (work.silent, MoveReason::Silent),
            (work.unreported, MoveReason::Unreported),
            (work.not_started, MoveReason::NotStarted),
            (work.unclaimed, MoveReason::Unclaimed),
            (work.unanswered, MoveReason::Unanswered),
            (work.unreminded, MoveReason::Unreminded),
            (work.unescalated, MoveReason::Unescalated),
        ];
        let calls = calls.into_iter().filter_map(|(found, due)| found.then_some(due)).collect();
        let SweepWorkRow { turns, doubtful, unpolled, links, sign_ins, .. } = work;
        Ok(SweepWork { calls, turns, doubtful, unpolled, links, sign_ins })
    }
}
