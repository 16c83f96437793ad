//! Turns: the periods in which a run has a lease.

use crate::entity::{event, run, step, thread};
use crate::event::new_event::Subject;
use crate::run::run_transitions::{Cancelled, Completed, Failed, RunMove, Running, Waiting};
use crate::sql::words::literal;
use crate::thread::extents::sum;
use crate::{
    CallsToCancel, HeldTurn, LockedThread, Read, RenewalOutcome, StoreError, Thread, Write, sql::rows,
};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::{EventType, system};
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::RunId;
use holdpoint_core::message::StepStatus;
use holdpoint_core::run::{Run, RunStatus, TurnError, TurnErrorCode};
use sea_orm::sea_query::{Expr, ExprTrait, Query, SimpleExpr, UpdateStatement};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityName, EntityTrait, JoinType, PaginatorTrait, QueryFilter,
    QueryOrder, QuerySelect, RelationTrait, Statement, UpdateMany,
};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Serializes the transactions that start a turn for one user.
const LOCK_USER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";

/// The lease of a turn. Only the holder may write in the name of the turn. Only the store creates a lease,
/// when it moves a run to `running`, each with a unique holder. A task that lost its lease cannot write any
/// more, even if the same process resumed the run.
#[derive(Debug)]
pub struct Lease {
    pub thread: Thread,
    pub run: Run,
    pub(crate) holder: String,
    pub(crate) time: Duration,
    /// Whether a transaction that ends the turn was sent. Its outcome may be unknown.
    pub(crate) may_have_ended: AtomicBool,
}

impl Lease {
    pub(crate) fn new(thread: &Thread, run: Run, holder: String, time: Duration) -> Self {
        Self { thread: thread.clone(), run, holder, time, may_have_ended: AtomicBool::new(false) }
    }

    /// Whether the turn may have ended although its task does not know it.
    pub fn may_have_ended(&self) -> bool {
        self.may_have_ended.load(Ordering::Relaxed)
    }
}

/// How a turn ended.
#[derive(Debug, Clone)]
pub enum TurnEnd {
    /// The run has held calls, or calls that child runs or workers execute.
    Waiting,
    /// The model gave its final answer.
    Completed,
    /// The run was cancelled.
    Cancelled,
    Failed(TurnError),
}

/// The numbers of turns in progress with a valid lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunningTurns {
    pub of_user: u64,
    pub of_tenant: u64,
}

impl TurnEnd {
    /// Returns the name of the end, which is the status of the run.
    pub const fn as_str(&self) -> &'static str {
        self.status().0.word()
    }

    /// Returns the error code of a failed turn.
    pub fn code(&self) -> Option<&'static str> {
        self.error().map(|error| error.code.word())
    }

    const fn error(&self) -> Option<&TurnError> {
        match self {
            Self::Failed(error) => Some(error),
            Self::Waiting | Self::Completed | Self::Cancelled => None,
        }
    }

    const fn status(&self) -> (RunStatus, EventType) {
        match self {
            Self::Waiting => (RunStatus::Waiting, EventType::RunWaiting),
            Self::Completed => (RunStatus::Completed, EventType::RunCompleted),
            Self::Cancelled => (RunStatus::Cancelled, EventType::RunCancelled),
            Self::Failed(_) => (RunStatus::Failed, EventType::RunFailed),
        }
    }
}

impl Read {
    /// Returns when the latest turn of a run of this thread began.
    pub async fn turn_began(&self, thread: &Thread, run: RunId) -> Result<Option<Timestamp>, StoreError> {
        let beginnings = [EventType::RunStarted, EventType::RunResumed];
        let last = event::Entity::find()
            .filter(event::Column::RunId.eq(run.to_string()))
            .filter(event::Column::ThreadId.eq(thread.id.to_string()))
            .filter(event::Column::EventType.is_in(beginnings.map(EventType::word)))
            .order_by_desc(event::Column::At)
            .one(&self.tx)
            .await?;
        Ok(last.map(|event| Timestamp::from_micros(event.at)))
    }

    /// Returns the end of a turn whose commit the database did not confirm: the end that the status of the
    /// run shows, if any.
    pub async fn ended_as(&self, lease: &Lease, end: TurnEnd) -> Result<Option<TurnEnd>, StoreError> {
        let found = run::Entity::find_by_id(lease.run.id.to_string()).one(&self.tx).await?;
        let found_now = |end: &TurnEnd| found.as_ref().is_some_and(|run| run.status == end.status().0.word());
        let ends = [end, TurnEnd::Completed, TurnEnd::Waiting, TurnEnd::Cancelled];
        Ok(ends.into_iter().find(found_now))
    }
}

impl Write {
    /// Returns the numbers of turns in progress of the thread's user and tenant, over all processes. Until
    /// the transaction ends, no other transaction starts a turn for this user, so the user's number stays
    /// true. The tenant's number may miss turns that start at the same moment. To avoid that, all turns of a
    /// tenant would have to start one after the other.
    pub async fn running_turns(&self, thread: &Thread) -> Result<RunningTurns, StoreError> {
        if self.tx.get_database_backend() == DbBackend::Postgres {
            let user = json!(["turns", thread.tenant_id, thread.user_id]).to_string();
            let lock = Statement::from_sql_and_values(DbBackend::Postgres, LOCK_USER, [user.into()]);
            self.tx.execute_raw(lock).await?;
        }
        let counts: Vec<(String, i64)> = run::Entity::find()
            .select_only()
            .column(thread::Column::UserId)
            .column_as(run::Column::RunId.count(), "turns")
            .join(JoinType::InnerJoin, run::Relation::Thread.def())
            .filter(thread::Column::TenantId.eq(&thread.tenant_id))
            // Literal, not a bind parameter, so that the partial index over running runs is usable.
            .filter(ExprTrait::eq(run::Column::Status.into_expr(), literal(RunStatus::Running)))
            .filter(run::Column::LeaseUntil.gte(self.now.as_micros()))
            .group_by(thread::Column::UserId)
            .into_tuple()
            .all(&self.tx)
            .await?;
        let mut running = RunningTurns::default();
        for (user, turns) in counts {
            let turns = u64::try_from(turns).unwrap_or_default();
            running.of_tenant += turns;
            if user == thread.user_id {
                running.of_user = turns;
            }
        }
        Ok(running)
    }

    pub async fn renew_turn(&self, lease: &Lease) -> Result<RenewalOutcome, StoreError> {
        self.name_commit("turn.renewed", None);
        let renewal = Query::update()
            .table(run::Entity.table_ref())
            .value(run::Column::LeaseUntil, self.now.plus(lease.time).as_micros())
            .and_where(run::Column::RunId.eq(lease.run.id.to_string()))
            .and_where(run::Column::Status.eq(RunStatus::Running.word()))
            .and_where(run::Column::Owner.eq(&lease.holder))
            .returning_col(run::Column::CancelRequestedAt)
            .to_owned();
        self.renewed(&renewal).await
    }

    /// Renews a lease with this statement, which returns when a cancel was requested.
    pub(crate) async fn renewed(&self, renewal: &UpdateStatement) -> Result<RenewalOutcome, StoreError> {
        let renewal = self.tx.get_database_backend().build(renewal);
        let Some(held) = self.tx.query_one_raw(renewal).await? else { return Ok(RenewalOutcome::Lost) };
        let cancel_requested_at: Option<i64> = held.try_get_by_index(0)?;
        Ok(if cancel_requested_at.is_some() { RenewalOutcome::CancelRequested } else { RenewalOutcome::Held })
    }

    /// Whether a cancel of a run with a turn in progress is requested.
    pub async fn was_cancel_requested(&self, run: RunId) -> Result<bool, StoreError> {
        let asked = run::Entity::find_by_id(run.to_string())
            .filter(run::Column::CancelRequestedAt.is_not_null())
            .count(&self.tx)
            .await?;
        Ok(asked > 0)
    }

    /// Ends a turn, and returns the actual end. A turn with a requested cancel is cancelled instead of
    /// waiting or failed. A turn that fails after its complete answer is completed. Returns `None` if the
    /// turn lost its lease.
    pub async fn end_turn(&self, lease: &Lease, end: TurnEnd) -> Result<Option<TurnEnd>, StoreError> {
        let thread = self.lock_thread(lease.thread.id).await?;
        let end = match end {
            // The task of the turn may not know that its last step was committed.
            TurnEnd::Failed(error) => self.end_of_broken(&lease.run, error).await?,
            end => end,
        };
        let held = run::Column::Owner.eq(&lease.holder);
        let ended = self.move_from_running(&thread, &lease.run, held, end, None).await?;
        if ended.is_some() {
            self.complete_if_passed(&thread, lease.run.id).await?;
        }
        Ok(ended)
    }

    /// Ends a turn in the transaction of its last step. No message follows the answer of a running run, so
    /// the user has sent no later one.
    pub(crate) async fn end_held_turn(&self, turn: &HeldTurn<'_>, end: &TurnEnd) -> Result<(), StoreError> {
        let lease = turn.lease();
        lease.may_have_ended.store(true, Ordering::Relaxed);
        let left = Self::leaving(self.now, &lease.run, end).filter(run::Column::Owner.eq(&lease.holder));
        self.update_later(left, "a run to end is not running").await?;
        self.left_running(&turn.thread, &lease.run, end, None).await
    }

    /// Closes a turn whose lease is over. Complete steps stay, the open step becomes interrupted, and the
    /// calls that the turn executed become interrupted. Returns false if the turn is alive.
    pub async fn close_dead_turn(&self, thread: &LockedThread, run: &Run) -> Result<bool, StoreError> {
        let lapsed = run::Column::LeaseUntil.lt(self.now.as_micros());
        let end = self.end_of_dead(run).await?;
        let closed = self.move_from_running(thread, run, lapsed, end, None).await?.is_some();
        if closed {
            self.interrupt_lapsed(run.id).await?;
        }
        Ok(closed)
    }

    /// Closes all running turns. Only for a database with one process, before that process starts a turn.
    pub(crate) async fn close_all_turns(&self) -> Result<u64, StoreError> {
        let left = run::Entity::find()
            .filter(run::Column::Status.eq(RunStatus::Running.word()))
            .all(&self.tx)
            .await?;
        let mut closed = 0;
        for row in left {
            let run = rows::run(&row)?;
            let thread = self.lock_thread(run.thread_id).await?;
            let running = run::Column::Status.eq(RunStatus::Running.word());
            let end = self.end_of_dead(&run).await?;
            let moved = self.move_from_running(&thread, &run, running, end, None).await?;
            closed += u64::from(moved.is_some());
        }
        Ok(closed)
    }

    /// Closes a turn of any holder, on behalf of this actor.
    pub(crate) async fn close_turn(
        &self,
        thread: &LockedThread,
        run: &Run,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let running = run::Column::Status.eq(RunStatus::Running.word());
        let end = self.end_of_dead(run).await?;
        Ok(self.move_from_running(thread, run, running, end, Some(actor)).await?.is_some())
    }

    /// Returns the end of a turn without a living task.
    async fn end_of_dead(&self, run: &Run) -> Result<TurnEnd, StoreError> {
        self.end_of_broken(run, TurnError::interrupted()).await
    }

    /// Returns the end of a failed turn. If the answer is complete, the turn is completed.
    async fn end_of_broken(&self, run: &Run, error: TurnError) -> Result<TurnEnd, StoreError> {
        let last = step::Entity::find()
            .filter(step::Column::MessageId.eq(run.assistant_message_id.to_string()))
            .order_by_desc(step::Column::N)
            .one(&self.tx)
            .await?;
        if let Some(last) = last.filter(|step| step.status == StepStatus::Complete.word())
            && self.calls_of_step(run.assistant_message_id, last.n).await?.is_empty()
        {
            return Ok(TurnEnd::Completed);
        }
        Ok(TurnEnd::Failed(error))
    }

    /// Ends a running turn. The actor is `actor`, or else the default actor of this end.
    async fn move_from_running(
        &self,
        thread: &LockedThread,
        run: &Run,
        guard: SimpleExpr,
        end: TurnEnd,
        actor: Option<&str>,
    ) -> Result<Option<TurnEnd>, StoreError> {
        let (run_id, message_id) = (run.id, run.assistant_message_id);
        let end = match end {
            TurnEnd::Waiting | TurnEnd::Failed(_) if self.was_cancel_requested(run_id).await? => {
                TurnEnd::Cancelled
            }
            end => end,
        };
        if !self.leave_running(thread, run, guard, &end, actor).await? {
            return Ok(None);
        }
        let interrupted = step::Entity::update_many()
            .col_expr(step::Column::Status, Expr::value(StepStatus::Interrupted.word()))
            .col_expr(step::Column::FinishedAt, Expr::value(self.now.as_micros()))
            .filter(step::Column::MessageId.eq(message_id.to_string()))
            .filter(step::Column::Status.eq(StepStatus::Streaming.word()));
        // The drafts of the step stay, and count from now on.
        let drafts = Box::pin(self.update_counted(interrupted)).await?;
        self.add_bytes(thread.id, sum(drafts));
        Ok(Some(end))
    }

    /// Moves a running run to this end, with its event. Returns false if the run does not match the guard.
    async fn leave_running(
        &self,
        thread: &LockedThread,
        run: &Run,
        guard: SimpleExpr,
        end: &TurnEnd,
        actor: Option<&str>,
    ) -> Result<bool, StoreError> {
        let moved = Self::leaving(self.now, run, end).filter(guard).exec(&self.tx).await?;
        if moved.rows_affected == 0 {
            return Ok(false);
        }
        self.left_running(thread, run, end, actor).await?;
        Ok(true)
    }

    /// Builds the move of a running run to this end.
    fn leaving(now: Timestamp, run: &Run, end: &TurnEnd) -> UpdateMany<run::Entity> {
        match end {
            TurnEnd::Waiting => RunMove::of(run.id, Waiting).from::<Running>().statement(),
            TurnEnd::Completed => RunMove::of(run.id, Completed(now)).from::<Running>().statement(),
            TurnEnd::Cancelled => RunMove::of(run.id, Cancelled(now)).from::<Running>().statement(),
            TurnEnd::Failed(error) => {
                RunMove::of(run.id, Failed(now, error.clone())).from::<Running>().statement()
            }
        }
    }

    /// Adds the event of a run that was running, and cancels the calls of a cancelled one.
    async fn left_running(
        &self,
        thread: &LockedThread,
        run: &Run,
        end: &TurnEnd,
        actor: Option<&str>,
    ) -> Result<(), StoreError> {
        let error = end.error();
        let data = error.map_or_else(EventData::none, |error| EventData::RunFailed { code: error.code });
        let actor = match (actor, error) {
            (Some(actor), _) => actor.to_owned(),
            (None, Some(TurnError { code: TurnErrorCode::Interrupted, .. })) => system::SWEEPER.to_owned(),
            (None, _) => thread.actor(),
        };
        self.event(end.status().1, &actor, &Subject::run(thread, run.id), data);
        if matches!(end, TurnEnd::Cancelled) {
            // The calls of the turn learn of the cancel when they renew their leases.
            self.cancel_calls(thread, CallsToCancel::OpenOf(run.id), &thread.actor()).await?;
        }
        Ok(())
    }
}
