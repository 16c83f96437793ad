//! Endpoints: how far the delivery of the numbered events went, and the process that delivers. An event is delivered
//! by the process that holds the endpoint, and the cursor moves by compare-and-set.

use crate::entity::{endpoint, event, thread};
use crate::event::events::event;
use crate::sql::words::Word;
use crate::{Read, SentMessage, Store, StoreError, Thread, TimedRead, VisibleCall, Write, sql::rows};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::endpoint::{ChannelKind, Endpoint, EndpointState, Failure, Failures, Refusals};
use holdpoint_core::event::{Event, EventType};
use holdpoint_core::id::ToolCallId;
use sea_orm::ActiveValue::{NotSet, Set};
use sea_orm::sea_query::{Expr, ExprTrait, OnConflict, Order, Query, SelectStatement, UnionType};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, EntityName, EntityTrait, FromQueryResult, Iterable, QueryFilter,
    QueryOrder, QuerySelect, UpdateMany,
};
use std::time::Duration;

const TABLE: &str = "endpoints";
/// Rows that one look scans.
const SCAN: u64 = 256;

const DELIVERING: &str = "delivering";
const FAILING: &str = "failing";
const DISABLED: &str = "disabled";

/// The events that an endpoint gets.
#[derive(Debug, Clone)]
pub struct EndpointEvents {
    /// Only events of this tenant.
    pub tenant_id: String,
    /// Only events of these types.
    pub types: Vec<EventType>,
}

/// An endpoint at the time of a read.
#[derive(Debug)]
pub struct LeasedEndpoint {
    pub endpoint: Endpoint,
    /// The process that delivers, and the end of its lease.
    pub held: Option<(String, Timestamp)>,
}

/// What follows a number in the events that an endpoint gets.
#[derive(Debug)]
pub enum NextEvent {
    Due(Box<DueEvent>),
    /// None up to this number.
    NoneUpTo {
        passed: i64,
        /// Whether later rows were not scanned.
        more: bool,
    },
}

/// An event to deliver.
#[derive(Debug)]
pub struct DueEvent {
    pub event: Event,
    /// Whether the thread is deleted: its contents are shown to no reader any more.
    pub of_deleted_thread: bool,
}

/// The right to deliver to one endpoint, from its cursor on.
#[derive(Debug)]
pub struct Delivery {
    name: String,
    holder: String,
    cursor: i64,
}

/// The outcome of an attempt after which the delivery continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempted {
    /// The endpoint has the event.
    Accepted,
    /// The endpoint has the event as this message about the call, its first one, which later messages change.
    Posted(ToolCallId, SentMessage),
    /// There is no message to change, and the event needs none.
    Unneeded,
    /// The service of the channel refused the message for good, with this status.
    Refused(u16),
}

/// What follows a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Another one by this process, which holds the endpoint for this time.
    Hold(Duration),
    /// None for now.
    Release,
}

#[derive(FromQueryResult)]
struct Waiting {
    place: i64,
    at: Option<i64>,
}

#[derive(FromQueryResult)]
struct Scanned {
    rows: i64,
    last: Option<i64>,
}

impl EndpointEvents {
    /// Selects the first rows of the tenant after this number, of all types.
    fn rows(&self, after: i64) -> SelectStatement {
        Query::select()
            .columns(event::Column::iter())
            .from(event::Entity.table_ref())
            .and_where(event::Column::TenantId.eq(&self.tenant_id))
            .and_where(event::Column::Seq.gt(after))
            .order_by(event::Column::Seq, Order::Asc)
            .limit(SCAN)
            .to_owned()
    }
}

impl Read {
    pub async fn endpoint(&self, name: &str) -> Result<Option<LeasedEndpoint>, StoreError> {
        let row = endpoint::Entity::find_by_id(name).one(&self.tx).await?;
        row.map(leased).transpose()
    }

    /// Returns all endpoints that were ever configured, in the order of their names.
    pub async fn endpoints(&self) -> Result<Vec<LeasedEndpoint>, StoreError> {
        let rows = endpoint::Entity::find().order_by_asc(endpoint::Column::Name).all(&self.tx).await?;
        let read = |row: endpoint::Model| rows::listed(TABLE, &row.name.clone(), leased(row));
        Ok(rows.into_iter().filter_map(read).collect())
    }

    /// Returns for each of these events, read from a number on, since when one of them waits: the time of the first event
    /// among the next rows.
    pub async fn waiting_since(
        &self,
        endpoints: &[(&EndpointEvents, i64)],
    ) -> Result<Vec<Option<Timestamp>>, StoreError> {
        let first = |(place, (wanted, after)): (i64, &(&EndpointEvents, i64))| {
            Query::select()
                .expr_as(Expr::value(place), "place")
                .expr_as(Expr::col(event::Column::At).min(), "at")
                .from_subquery(wanted.rows(*after), event::Entity)
                .and_where(event::Column::EventType.is_in(wanted.types.iter().map(|it| it.word())))
                .to_owned()
        };
        let mut selects = (0..).zip(endpoints).map(first);
        let Some(mut all) = selects.next() else { return Ok(Vec::new()) };
        for more in selects {
            all.union(UnionType::All, more);
        }
        let all = self.tx.get_database_backend().build(&all);
        let mut since = vec![None; endpoints.len()];
        for Waiting { place, at } in Waiting::find_by_statement(all).all(&self.tx).await? {
            if let Some(since) = usize::try_from(place).ok().and_then(|place| since.get_mut(place)) {
                *since = at.map(Timestamp::from_micros);
            }
        }
        Ok(since)
    }

    /// Returns the number of the oldest event that is not deleted, or of the next event if there is none.
    pub async fn oldest_event(&self) -> Result<i64, StoreError> {
        let first: Option<Option<i64>> = event::Entity::find()
            .select_only()
            .column_as(event::Column::Seq.min(), "first")
            .into_tuple()
            .one(&self.tx)
            .await?;
        match first.flatten() {
            Some(first) => Ok(first),
            None => Ok(self.numbered().await?.last.saturating_add(1)),
        }
    }

    /// Returns the next event after this number that an endpoint gets, with its call.
    pub async fn next_event(&self, wanted: &EndpointEvents, after: i64) -> Result<NextEvent, StoreError> {
        let Some(row) = self.next_row(wanted, after).await? else {
            let scanned = Query::select()
                .expr_as(Expr::col(event::Column::Seq).count(), "rows")
                .expr_as(Expr::col(event::Column::Seq).max(), "last")
                .from_subquery(wanted.rows(after), event::Entity)
                .to_owned();
            let scanned = self.tx.get_database_backend().build(&scanned);
            let scanned = Scanned::find_by_statement(scanned).one(&self.tx).await?;
            let (rows, last) = scanned.map_or((0, None), |scanned| (scanned.rows, scanned.last));
            let more = u64::try_from(rows).is_ok_and(|rows| rows >= SCAN);
            return Ok(NextEvent::NoneUpTo { passed: last.unwrap_or(after), more });
        };
        let deleted: Option<Option<i64>> = thread::Entity::find_by_id(&row.thread_id)
            .select_only()
            .column(thread::Column::DeletedAt)
            .into_tuple()
            .one(&self.tx)
            .await?;
        let calls = self.calls_of(std::slice::from_ref(&row)).await?;
        let event = event(row, &calls)
            .ok_or_else(|| rows::inconsistent("events", "a numbered event has no number"))?;
        Ok(NextEvent::Due(Box::new(DueEvent { event, of_deleted_thread: deleted.flatten().is_some() })))
    }

    /// Returns the held call of an event, with the people that may decide it. `None` if the event is about no held call.
    pub async fn hold_of(&self, event: &Event) -> Result<Option<VisibleCall>, StoreError> {
        let Some(call) = event.call.clone().filter(|call| call.held) else { return Ok(None) };
        let thread = thread::Entity::find_by_id(&event.thread_id).one(&self.tx).await?;
        let Some(thread) = thread.map(Thread::of).transpose()? else { return Ok(None) };
        let votes = self.votes_of(call.id).await?;
        let delegations = self.delegations_of(call.id).await?;
        Ok(Some(VisibleCall { call, thread, votes, delegations }))
    }

    async fn next_row(
        &self,
        wanted: &EndpointEvents,
        after: i64,
    ) -> Result<Option<event::Model>, StoreError> {
        let first = Query::select()
            .columns(event::Column::iter())
            .from_subquery(wanted.rows(after), event::Entity)
            .and_where(event::Column::EventType.is_in(wanted.types.iter().map(|it| it.word())))
            .order_by(event::Column::Seq, Order::Asc)
            .limit(1)
            .to_owned();
        let first = self.tx.get_database_backend().build(&first);
        Ok(event::Model::find_by_statement(first).one(&self.tx).await?)
    }
}

impl TimedRead {
    pub fn now(&self) -> Timestamp {
        self.now
    }
}

impl Store {
    /// Makes sure that an endpoint of this name has a row. A new endpoint, and one of another tenant or channel than
    /// before, begins at the end of the events.
    pub async fn place_endpoint(
        &self,
        name: &str,
        tenant_id: &str,
        channel: ChannelKind,
    ) -> Result<(), StoreError> {
        // The lease of an earlier process on SQLite, which has ended.
        let is_left = |leased: &LeasedEndpoint| self.has_one_writer() && leased.held.is_some();
        let found = self.read().await?.endpoint(name).await?;
        let is_same = |it: &Endpoint| it.tenant_id == tenant_id && it.channel == channel;
        if found.is_some_and(|it| is_same(&it.endpoint) && !is_left(&it)) {
            return Ok(());
        }
        let write = self.write().await?;
        let last = write.numbered().await?.last;
        let row = endpoint::ActiveModel {
            name: Set(name.to_owned()),
            tenant_id: Set(tenant_id.to_owned()),
            channel: Set(channel.word().to_owned()),
            cursor: Set(last),
            state: Set(DELIVERING.to_owned()),
            failures: Set(0),
            failing_since: NotSet,
            last_failure: NotSet,
            next_attempt_at: NotSet,
            disabled_at: NotSet,
            disabled_reason: NotSet,
            refused: Set(0),
            refused_at: NotSet,
            refused_status: NotSet,
            holder: NotSet,
            lease_until: NotSet,
        };
        let insert = endpoint::Entity::insert(row).on_conflict(OnConflict::new().do_nothing().to_owned());
        insert.exec_without_returning(&write.tx).await?;
        let named = endpoint::Column::Name.eq(name);
        if self.has_one_writer() {
            released(endpoint::Entity::update_many()).filter(named.clone()).exec(&write.tx).await?;
        }
        let is_other = Condition::any()
            .add(endpoint::Column::TenantId.ne(tenant_id))
            .add(endpoint::Column::Channel.ne(channel.word()));
        released(in_state(&EndpointState::Delivering))
            .col_expr(endpoint::Column::TenantId, Expr::value(tenant_id))
            .col_expr(endpoint::Column::Channel, Expr::value(channel.word()))
            .col_expr(endpoint::Column::Cursor, Expr::value(last))
            .col_expr(endpoint::Column::Refused, Expr::value(0))
            .col_expr(endpoint::Column::RefusedAt, Expr::value(None::<i64>))
            .col_expr(endpoint::Column::RefusedStatus, Expr::value(None::<i32>))
            .filter(named)
            .filter(is_other)
            .exec(&write.tx)
            .await?;
        write.commit().await
    }
}

impl Write {
    /// Gives the right to deliver to this process, for this time. Returns `None` if another process has it, if the
    /// delivery went on since the endpoint was read, or if no attempt is due.
    pub async fn claim_endpoint(
        &self,
        endpoint: &Endpoint,
        holder: &str,
        lease: Duration,
    ) -> Result<Option<Delivery>, StoreError> {
        let now = self.now.as_micros();
        let due = Condition::any()
            .add(endpoint::Column::NextAttemptAt.is_null())
            .add(endpoint::Column::NextAttemptAt.lte(now));
        let free = Condition::any()
            .add(endpoint::Column::Holder.is_null())
            .add(endpoint::Column::Holder.eq(holder))
            .add(endpoint::Column::LeaseUntil.lte(now));
        let claimed = held(endpoint::Entity::update_many(), holder, self.now.plus(lease))
            .filter(endpoint::Column::Name.eq(&endpoint.name))
            .filter(endpoint::Column::TenantId.eq(&endpoint.tenant_id))
            .filter(endpoint::Column::Cursor.eq(endpoint.cursor))
            .filter(endpoint::Column::State.ne(DISABLED))
            .filter(due)
            .filter(free)
            .exec(&self.tx)
            .await?;
        let (name, holder, cursor) = (endpoint.name.clone(), holder.to_owned(), endpoint.cursor);
        Ok((claimed.rows_affected == 1).then_some(Delivery { name, holder, cursor }))
    }

    /// Records that everything up to this number is delivered or refused. Returns false if the right is lost.
    pub async fn delivered(
        &self,
        delivery: &mut Delivery,
        (attempted, up_to): (&Attempted, i64),
        then: Then,
    ) -> Result<bool, StoreError> {
        let update =
            in_state(&EndpointState::Delivering).col_expr(endpoint::Column::Cursor, Expr::value(up_to));
        let update = match attempted {
            Attempted::Accepted | Attempted::Posted(..) | Attempted::Unneeded => update,
            Attempted::Refused(status) => update
                .col_expr(endpoint::Column::Refused, Expr::col(endpoint::Column::Refused).add(1))
                .col_expr(endpoint::Column::RefusedAt, Expr::value(self.now.as_micros()))
                .col_expr(endpoint::Column::RefusedStatus, Expr::value(i32::from(*status))),
        };
        let update = match then {
            Then::Hold(lease) => held(update, &delivery.holder, self.now.plus(lease)),
            Then::Release => released(update),
        };
        let moved = delivery.guard(update).exec(&self.tx).await?.rows_affected == 1;
        if let (Attempted::Posted(call, message), true) = (attempted, moved) {
            self.keep_sent_message(&delivery.name, *call, message).await?;
        }
        delivery.cursor = up_to;
        Ok(moved)
    }

    /// Records the state after a failed attempt, and gives the right back.
    pub async fn failed(&self, delivery: &Delivery, state: &EndpointState) -> Result<bool, StoreError> {
        let failed = delivery.guard(released(in_state(state))).exec(&self.tx).await?;
        Ok(failed.rows_affected == 1)
    }

    /// Gives the right back without an attempt.
    pub async fn release_endpoint(&self, delivery: &Delivery) -> Result<(), StoreError> {
        delivery.guard(released(endpoint::Entity::update_many())).exec(&self.tx).await?;
        Ok(())
    }

    /// Moves the cursor over events that the endpoint does not get, if no process delivers.
    pub async fn pass_events(&self, endpoint: &Endpoint, up_to: i64) -> Result<(), StoreError> {
        endpoint::Entity::update_many()
            .col_expr(endpoint::Column::Cursor, Expr::value(up_to))
            .filter(endpoint::Column::Name.eq(&endpoint.name))
            .filter(endpoint::Column::TenantId.eq(&endpoint.tenant_id))
            .filter(endpoint::Column::Cursor.eq(endpoint.cursor))
            .filter(endpoint::Column::State.eq(DELIVERING))
            .filter(endpoint::Column::Holder.is_null())
            .exec(&self.tx)
            .await?;
        Ok(())
    }

    /// Forgets the failures of an endpoint, so that the next attempt begins now. Returns false if there is no such
    /// endpoint.
    pub async fn enable_endpoint(&self, name: &str) -> Result<bool, StoreError> {
        let enabled = in_state(&EndpointState::Delivering).filter(endpoint::Column::Name.eq(name));
        Ok(enabled.exec(&self.tx).await?.rows_affected == 1)
    }
}

impl Delivery {
    /// Limits an update to an endpoint that this process holds, and that nothing has moved.
    fn guard(&self, update: UpdateMany<endpoint::Entity>) -> UpdateMany<endpoint::Entity> {
        update
            .filter(endpoint::Column::Name.eq(&self.name))
            .filter(endpoint::Column::Holder.eq(&self.holder))
            .filter(endpoint::Column::Cursor.eq(self.cursor))
            .filter(endpoint::Column::State.ne(DISABLED))
    }
}

fn held(
    update: UpdateMany<endpoint::Entity>,
    holder: &str,
    until: Timestamp,
) -> UpdateMany<endpoint::Entity> {
    update
        .col_expr(endpoint::Column::Holder, Expr::value(holder))
        .col_expr(endpoint::Column::LeaseUntil, Expr::value(until.as_micros()))
}

fn released(update: UpdateMany<endpoint::Entity>) -> UpdateMany<endpoint::Entity> {
    update
        .col_expr(endpoint::Column::Holder, Expr::value(None::<String>))
        .col_expr(endpoint::Column::LeaseUntil, Expr::value(None::<i64>))
}

/// Sets the columns of a state.
fn in_state(state: &EndpointState) -> UpdateMany<endpoint::Entity> {
    let (word, next, disabled) = match state {
        EndpointState::Delivering => (DELIVERING, None, None),
        EndpointState::Failing { next_attempt_at, .. } => (FAILING, Some(*next_attempt_at), None),
        EndpointState::Disabled { at, reason, .. } => (DISABLED, None, Some((*at, *reason))),
    };
    let failures = state.failures();
    let count = failures.map_or(0, |it| i32::try_from(it.count).unwrap_or(i32::MAX));
    endpoint::Entity::update_many()
        .col_expr(endpoint::Column::State, Expr::value(word))
        .col_expr(endpoint::Column::Failures, Expr::value(count))
        .col_expr(endpoint::Column::FailingSince, Expr::value(failures.map(|it| it.since.as_micros())))
        .col_expr(endpoint::Column::LastFailure, Expr::value(failures.map(|it| failure_word(it.last))))
        .col_expr(endpoint::Column::NextAttemptAt, Expr::value(next.map(Timestamp::as_micros)))
        .col_expr(endpoint::Column::DisabledAt, Expr::value(disabled.map(|(at, _)| at.as_micros())))
        .col_expr(endpoint::Column::DisabledReason, Expr::value(disabled.map(|(_, reason)| reason.word())))
}

fn leased(row: endpoint::Model) -> Result<LeasedEndpoint, StoreError> {
    let held = row.holder.clone().zip(row.lease_until.map(Timestamp::from_micros));
    let state = match row.state.as_str() {
        DELIVERING => EndpointState::Delivering,
        FAILING => {
            let next = needed("next_attempt_at", row.next_attempt_at)?;
            EndpointState::Failing {
                failures: failures(&row)?,
                next_attempt_at: Timestamp::from_micros(next),
            }
        }
        DISABLED => EndpointState::Disabled {
            failures: failures(&row)?,
            at: Timestamp::from_micros(needed("disabled_at", row.disabled_at)?),
            reason: rows::word(TABLE, &needed("disabled_reason", row.disabled_reason.clone())?)?,
        },
        other => return Err(rows::inconsistent(TABLE, format_args!("{other:?} is not a state"))),
    };
    let channel = rows::word(TABLE, &row.channel)?;
    let refusals = refusals(&row)?;
    let endpoint =
        Endpoint { name: row.name, tenant_id: row.tenant_id, channel, cursor: row.cursor, state, refusals };
    Ok(LeasedEndpoint { endpoint, held })
}

fn failures(row: &endpoint::Model) -> Result<Failures, StoreError> {
    let last = needed("last_failure", row.last_failure.as_deref())?;
    let unknown = || rows::inconsistent(TABLE, format_args!("{last:?} is not a failure"));
    Ok(Failures {
        count: u32::try_from(row.failures).map_err(|error| rows::inconsistent(TABLE, error))?,
        since: Timestamp::from_micros(needed("failing_since", row.failing_since)?),
        last: failure_of(last).ok_or_else(unknown)?,
    })
}

fn refusals(row: &endpoint::Model) -> Result<Option<Refusals>, StoreError> {
    if row.refused == 0 {
        return Ok(None);
    }
    let status = needed("refused_status", row.refused_status)?;
    Ok(Some(Refusals {
        count: u32::try_from(row.refused).map_err(|error| rows::inconsistent(TABLE, error))?,
        at: Timestamp::from_micros(needed("refused_at", row.refused_at)?),
        status: u16::try_from(status).map_err(|error| rows::inconsistent(TABLE, error))?,
    }))
}

fn needed<T>(column: &'static str, value: Option<T>) -> Result<T, StoreError> {
    value.ok_or_else(|| rows::inconsistent(TABLE, format_args!("{column} is missing")))
}

/// The word of a failure in its column: the status, or what is there in place of one.
fn failure_word(failure: Failure) -> String {
    match failure {
        Failure::Status(status) => status.to_string(),
        Failure::NoAnswer => "no_answer".to_owned(),
        Failure::NotSent => "not_sent".to_owned(),
    }
}

fn failure_of(word: &str) -> Option<Failure> {
    match word {
        "no_answer" => Some(Failure::NoAnswer),
        "not_sent" => Some(Failure::NotSent),
        status => status.parse().ok().map(Failure::Status),
    }
}
