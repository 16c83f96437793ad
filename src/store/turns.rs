//! Turns: the time in which a run is held by a lease.

use super::entity::{event, run, step, thread};
use super::events::Subject;
use super::{Read, Renewed, StoreError, Thread, Which, Write, rows};
use crate::domain::clock::Timestamp;
use crate::domain::event::{EventType, system};
use crate::domain::id::RunId;
use crate::domain::run::{Run, TurnError, TurnErrorCode};
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{
    ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, JoinType, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, Statement,
};
use serde_json::json;
use std::time::Duration;

/// Has those who begin a turn for one user do it one after the other.
const LOCK_USER: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";

/// A turn as its task holds it: nobody else may write in its name. Only the store makes one, when it moves a
/// run to running, each with a name of its own: a task that was taken for dead holds nothing any more, even
/// where the same process took the run up again.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) thread: Thread,
    pub(crate) run: Run,
    pub(super) holder: String,
    pub(super) time: Duration,
}

/// How a turn ended.
#[derive(Debug, Clone)]
pub(crate) enum TurnEnd {
    /// It holds calls for a person.
    Waiting,
    /// The model gave its final answer.
    Completed,
    /// Somebody stopped it.
    Cancelled,
    /// It broke.
    Failed(TurnError),
}

/// Turns under way whose processes live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) of_user: u64,
    pub(crate) of_tenant: u64,
}

impl TurnEnd {
    /// Its word, which is the status of the run.
    pub(crate) const fn as_str(&self) -> &'static str {
        self.status().0
    }

    /// Why it broke, if it did.
    pub(crate) fn code(&self) -> Option<&'static str> {
        match self {
            Self::Failed(error) => Some(error.code.as_str()),
            Self::Waiting | Self::Completed | Self::Cancelled => None,
        }
    }

    const fn status(&self) -> (&'static str, &'static str, EventType) {
        match self {
            Self::Waiting => ("waiting", "complete", EventType::RunWaiting),
            Self::Completed => ("completed", "complete", EventType::RunCompleted),
            Self::Cancelled => ("cancelled", "interrupted", EventType::RunCancelled),
            Self::Failed(_) => ("failed", "interrupted", EventType::RunFailed),
        }
    }
}

impl Read {
    /// When the latest turn of a run of this thread began.
    pub(crate) async fn turn_began(
        &self,
        thread: &Thread,
        run: RunId,
    ) -> Result<Option<Timestamp>, StoreError> {
        let beginnings = [EventType::RunStarted, EventType::RunResumed].map(EventType::as_str);
        let last = event::Entity::find()
            .filter(event::Column::RunId.eq(run.to_string()))
            .filter(event::Column::ThreadId.eq(thread.id.to_string()))
            .filter(event::Column::EventType.is_in(beginnings))
            .order_by_desc(event::Column::At)
            .one(&self.tx)
            .await?;
        Ok(last.map(|event| Timestamp::from_micros(event.at)))
    }

    /// How a turn ended whose end may have been committed without a word: so, if its run stands so.
    pub(crate) async fn ended_as(&self, lease: &Lease, end: TurnEnd) -> Result<Option<TurnEnd>, StoreError> {
        let found = run::Entity::find_by_id(lease.run.id.to_string()).one(&self.tx).await?;
        let found_now = |end: &TurnEnd| found.as_ref().is_some_and(|run| run.status == end.status().0);
        Ok([end, TurnEnd::Completed, TurnEnd::Cancelled].into_iter().find(found_now))
    }
}

impl Write {
    /// The turns under way of the thread's user and tenant, over all processes. Until the transaction ends no other
    /// begins one for this user, so that their count stays true. A tenant's may be behind by those that begin in this
    /// very moment: all of a tenant's turns would have to begin one after the other.
    pub(crate) async fn turns_under_way(&self, thread: &Thread) -> Result<UnderWay, StoreError> {
        if self.tx.get_database_backend() == DbBackend::Postgres {
            let user = json!(["turns", thread.tenant_id, thread.user_id]).to_string();
            let lock = Statement::from_sql_and_values(DbBackend::Postgres, LOCK_USER, [user.into()]);
            self.tx.execute_raw(lock).await?;
        }
        let of_threads = run::Entity::belongs_to(thread::Entity)
            .from(run::Column::ThreadId)
            .to(thread::Column::ThreadId)
            .into();
        let counts: Vec<(String, i64)> = run::Entity::find()
            .select_only()
            .column(thread::Column::UserId)
            .column_as(run::Column::RunId.count(), "turns")
            .join(JoinType::InnerJoin, of_threads)
            .filter(thread::Column::TenantId.eq(&thread.tenant_id))
            // Written out, not a parameter: only so is the index over what runs of use.
            .filter(ExprTrait::eq(run::Column::Status.into_expr(), Expr::cust("'running'")))
            .filter(run::Column::LeaseUntil.gte(self.now.as_micros()))
            .group_by(thread::Column::UserId)
            .into_tuple()
            .all(&self.tx)
            .await?;
        let mut under_way = UnderWay::default();
        for (user, turns) in counts {
            let turns = u64::try_from(turns).unwrap_or_default();
            under_way.of_tenant += turns;
            if user == thread.user_id {
                under_way.of_user = turns;
            }
        }
        Ok(under_way)
    }

    /// Says that the turn is alive.
    pub(crate) async fn renew_turn(&self, lease: &Lease) -> Result<Renewed, StoreError> {
        #[cfg(feature = "torture")]
        self.name.set("turn.renewed", None);
        let held = run::Entity::update_many()
            .col_expr(run::Column::LeaseUntil, Expr::value(self.now.plus(lease.time).as_micros()))
            .filter(run::Column::RunId.eq(lease.run.id.to_string()))
            .filter(run::Column::Status.eq("running"))
            .filter(run::Column::Owner.eq(&lease.holder))
            .exec(&self.tx)
            .await?;
        Ok(Renewed::of(held.rows_affected == 1, self.was_asked_to_stop(lease.run.id).await?))
    }

    /// Whether somebody asked a run to stop whose turn goes on.
    pub(crate) async fn was_asked_to_stop(&self, run: RunId) -> Result<bool, StoreError> {
        let asked = run::Entity::find_by_id(run.to_string())
            .filter(run::Column::CancelRequestedAt.is_not_null())
            .count(&self.tx)
            .await?;
        Ok(asked > 0)
    }

    /// Ends a turn, and gives how: one that was asked to stop does not wait for a person, and one that broke behind its
    /// whole answer did not. `None` if it was taken for dead meanwhile.
    pub(crate) async fn end_turn(&self, lease: &Lease, end: TurnEnd) -> Result<Option<TurnEnd>, StoreError> {
        self.lock_thread(&lease.thread).await?;
        let end = match end {
            // That the last step was committed its task may not have heard.
            TurnEnd::Failed(error) => self.end_of_broken(&lease.run, error).await?,
            end => end,
        };
        let held = run::Column::Owner.eq(&lease.holder);
        let ended = self.move_from_running(&lease.thread, &lease.run, held, end, None).await?;
        if ended.is_some() {
            self.complete_if_passed(&lease.thread, lease.run.id).await?;
        }
        Ok(ended)
    }

    /// Closes a turn whose process went away: what is whole stays, the rest is shown as broken off, and nobody knows
    /// how the calls went that it ran. False if it is alive.
    pub(crate) async fn close_dead_turn(&self, thread: &Thread, run: &Run) -> Result<bool, StoreError> {
        self.lock_thread(thread).await?;
        let lapsed = run::Column::LeaseUntil.lt(self.now.as_micros());
        let end = self.end_of_dead(run).await?;
        let closed = self.move_from_running(thread, run, lapsed, end, None).await?.is_some();
        if closed {
            self.interrupt_lapsed(run.id).await?;
        }
        Ok(closed)
    }

    /// Closes every turn that is running; only where one process writes, and before it begins any.
    pub(super) async fn close_all_turns(&self) -> Result<u64, StoreError> {
        let left = run::Entity::find().filter(run::Column::Status.eq("running")).all(&self.tx).await?;
        let mut closed = 0;
        for row in left {
            let run = rows::run(row)?;
            let thread = self.any_thread(run.thread_id).await?;
            let running = run::Column::Status.eq("running");
            let end = self.end_of_dead(&run).await?;
            let moved = self.move_from_running(&thread, &run, running, end, None).await?;
            closed += u64::from(moved.is_some());
        }
        Ok(closed)
    }

    /// Closes a turn, whoever holds it, by this actor's wish.
    pub(super) async fn close_turn(
        &self,
        thread: &Thread,
        run: &Run,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let running = run::Column::Status.eq("running");
        let end = self.end_of_dead(run).await?;
        Ok(self.move_from_running(thread, run, running, end, Some(actor)).await?.is_some())
    }

    /// The end of a turn that nobody ends any more.
    async fn end_of_dead(&self, run: &Run) -> Result<TurnEnd, StoreError> {
        self.end_of_broken(run, TurnError::interrupted()).await
    }

    /// The end of a turn that broke so: where its answer was whole it lacked nothing but its end.
    async fn end_of_broken(&self, run: &Run, error: TurnError) -> Result<TurnEnd, StoreError> {
        let last = step::Entity::find()
            .filter(step::Column::MessageId.eq(run.assistant_message_id.to_string()))
            .order_by_desc(step::Column::N)
            .one(&self.tx)
            .await?;
        if let Some(last) = last.filter(|step| step.status == "complete")
            && self.calls_of_step(run.assistant_message_id, last.n).await?.is_empty()
        {
            return Ok(TurnEnd::Completed);
        }
        Ok(TurnEnd::Failed(error))
    }

    /// By this actor, or else by whoever such an end is due to.
    async fn move_from_running(
        &self,
        thread: &Thread,
        run: &Run,
        guard: SimpleExpr,
        end: TurnEnd,
        actor: Option<&str>,
    ) -> Result<Option<TurnEnd>, StoreError> {
        let (run_id, message_id) = (run.id, run.assistant_message_id);
        let end = match end {
            TurnEnd::Waiting | TurnEnd::Failed(_) if self.was_asked_to_stop(run_id).await? => {
                TurnEnd::Cancelled
            }
            end => end,
        };
        let (status, message_status, event) = end.status();
        let error = match &end {
            TurnEnd::Failed(error) => Some(error),
            TurnEnd::Waiting | TurnEnd::Completed | TurnEnd::Cancelled => None,
        };
        let finished_at = (!matches!(end, TurnEnd::Waiting)).then_some(self.now.as_micros());
        let moved = run::Entity::update_many()
            .col_expr(run::Column::Status, Expr::value(status))
            .col_expr(run::Column::Owner, Expr::value(None::<String>))
            .col_expr(run::Column::LeaseUntil, Expr::value(None::<i64>))
            .col_expr(run::Column::CancelRequestedAt, Expr::value(None::<i64>))
            .col_expr(run::Column::ErrorCode, Expr::value(error.map(|error| error.code.as_str())))
            .col_expr(run::Column::ErrorMessage, Expr::value(error.map(|error| error.message.clone())))
            .col_expr(run::Column::FinishedAt, Expr::value(finished_at))
            .filter(run::Column::RunId.eq(run_id.to_string()))
            .filter(run::Column::Status.eq("running"))
            .filter(guard)
            .exec(&self.tx)
            .await?;
        if moved.rows_affected == 0 {
            return Ok(None);
        }
        step::Entity::update_many()
            .col_expr(step::Column::Status, Expr::value("interrupted"))
            .col_expr(step::Column::FinishedAt, Expr::value(self.now.as_micros()))
            .filter(step::Column::MessageId.eq(message_id.to_string()))
            .filter(step::Column::Status.eq("streaming"))
            .exec(&self.tx)
            .await?;
        self.set_message_status(message_id, message_status).await?;
        let data = error.map_or_else(|| json!({}), |error| json!({ "code": error.code.as_str() }));
        let actor = match (actor, error) {
            (Some(actor), _) => actor.to_owned(),
            (None, Some(TurnError { code: TurnErrorCode::Interrupted, .. })) => system::SWEEPER.to_owned(),
            (None, _) => thread.actor(),
        };
        self.event(event, &actor, &Subject::run(thread, run_id), data).await?;
        if matches!(end, TurnEnd::Cancelled) {
            // Those that began since the turn was asked to stop see it when they renew their leases.
            self.cancel_calls(thread, Which::OpenOf(run_id), &thread.actor()).await?;
        }
        Ok(Some(end))
    }
}
