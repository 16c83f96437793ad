//! Events: one row for each change, in the transaction of the change. Events hold hashes, never inputs or
//! results. A reader of an event gets these from the call, in its current state.

use crate::call::calls::of_run;
use crate::decision::inbox::{held, visible_calls};
use crate::decision::opened::{is_delegated, is_escalated};
use crate::entity::{event, run, thread, tool_call};
use crate::event::new_event::{NewEvent, Subject};
use crate::event::reached::ReachedState;
use crate::sql::batch::Guarded;
use crate::thread::threads::{of_tenant, threads_where};
use crate::{Page, PageSize, Read, StoreError, Visibility, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::{Event, EventType};
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::{RunId, ThreadId, ToolCallId};
use sea_orm::ActiveValue::{NotSet, Set};
use sea_orm::sea_query::{
    Expr, ExprTrait, IntoColumnRef, Order, Query, SelectStatement, SimpleExpr, UnionType,
};
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DbBackend, EntityName, EntityTrait, FromQueryResult, Iterable,
    PaginatorTrait, QueryFilter, QuerySelect, UpdateMany,
};
use serde_json::{Map, json};
use std::collections::HashMap;
use std::slice;

/// Maximum number of events that one statement inserts. SQLite limits the number of parameters.
const EVENTS_PER_INSERT: usize = 1000;
/// Rows that one statement scans for each event that it is to find.
const ROWS_PER_EVENT: u64 = 10;
/// Maximum number of tools for which an approver's events are looked up tool by tool. An approver of more
/// tools scans the events of the tenant.
const TOOLS_MAX: usize = 50;

#[derive(Debug, Default)]
pub(crate) struct Events {
    /// The events that are not inserted yet, in order.
    pub(crate) waiting: Vec<event::ActiveModel>,
    /// Whether the transaction has inserted events.
    pub(crate) inserted: bool,
}

impl Write {
    /// Adds an event. The commit inserts the events of the transaction with one statement.
    pub(crate) fn event(&self, event_type: EventType, actor: &str, subject: &Subject<'_>, data: EventData) {
        self.add_event(&NewEvent { event_type, actor, subject, data });
    }

    /// Updates a row that matches a guard, and adds an event. Returns false if no row matches: then the event is not
    /// added. On Postgres one statement updates the row and inserts the events that wait, and this event after them.
    pub(crate) async fn update_with_event<E: EntityTrait>(
        &self,
        update: UpdateMany<E>,
        new: &NewEvent<'_>,
    ) -> Result<bool, StoreError> {
        if self.tx.get_database_backend() == DbBackend::Postgres {
            return self.update_with(Guarded::new(update), slice::from_ref(new)).await;
        }
        let moved = update.exec(&self.tx).await?.rows_affected == 1;
        if moved {
            self.add_event(new);
        }
        Ok(moved)
    }

    /// Makes a guarded change on Postgres, with the events that wait, and these events after them.
    pub(crate) async fn update_with(
        &self,
        change: Guarded,
        new: &[NewEvent<'_>],
    ) -> Result<bool, StoreError> {
        if self.events.lock().waiting.len() >= EVENTS_PER_INSERT {
            let waiting = std::mem::take(&mut self.events.lock().waiting);
            self.insert_events(waiting).await?;
            self.events.lock().inserted = true;
        }
        let mut rows = self.events.lock().waiting.clone();
        rows.extend(new.iter().map(|new| self.event_row(new)));
        let moved = self.tx.guarded(change.with(&rows)).await?;
        if moved {
            *self.events.lock() = Events { waiting: Vec::new(), inserted: true };
            new.iter().for_each(|new| self.record_event(new));
        }
        Ok(moved)
    }

    /// Inserts these events in as few statements as possible.
    pub(crate) async fn insert_events(&self, mut events: Vec<event::ActiveModel>) -> Result<(), StoreError> {
        while !events.is_empty() {
            let later = events.split_off(events.len().min(EVENTS_PER_INSERT));
            self.insert_later(events).await?;
            events = later;
        }
        Ok(())
    }

    pub(crate) fn add_event(&self, new: &NewEvent<'_>) {
        self.events.lock().waiting.push(self.event_row(new));
        self.record_event(new);
    }

    fn event_row(&self, new: &NewEvent<'_>) -> event::ActiveModel {
        let NewEvent { event_type, actor, subject, data } = new;
        event::ActiveModel {
            event_id: Set(self.clock.uuid().to_string()),
            seq: NotSet,
            event_type: Set(event_type.word().to_owned()),
            at: Set(self.now.as_micros()),
            actor: Set((*actor).to_owned()),
            tenant_id: Set(subject.thread.tenant_id.clone()),
            user_id: Set(subject.thread.user_id.clone()),
            held_tool: Set(subject.held_tool().map(str::to_owned)),
            session_id: Set(subject.thread.session_id.to_string()),
            thread_id: Set(subject.thread.id.to_string()),
            run_id: Set(Some(subject.run_id.to_string())),
            tool_call_id: Set(subject.call.as_ref().map(|call| call.id.to_string())),
            data: Set(json!(data).to_string()),
        }
    }

    /// Notes what the commit reports of an event.
    fn record_event(&self, new: &NewEvent<'_>) {
        self.name_commit(new.event_type.word(), new.subject.call.as_ref().map(|call| call.id));
        self.reached.lock().extend(ReachedState::of(new));
    }
}

/// A reader of events: of all events of the reader's own threads, and of the visible events of other threads.
#[derive(Debug, Clone)]
pub struct EventReader {
    pub principal: Principal,
    pub visibility: Visibility,
}

/// A filter of events. An absent field does not filter.
#[derive(Debug, Clone, Copy, Default)]
pub struct EventFilter {
    pub session: Option<ThreadId>,
    pub thread: Option<ThreadId>,
    pub run: Option<RunId>,
    pub call: Option<ToolCallId>,
}

impl EventReader {
    /// Whether the reader may see events of other users.
    pub fn sees_others(&self) -> bool {
        !matches!(&self.visibility, Visibility::Approver { tools, .. } if tools.is_empty())
    }

    /// Returns the predicate over an event.
    fn sees(&self) -> SimpleExpr {
        let mut of_thread = Query::select();
        of_thread
            .expr(Expr::val(1))
            .from(thread::Entity.table_ref())
            .and_where(thread::Column::ThreadId.into_expr().equals((event::Entity, event::Column::ThreadId)))
            .cond_where(of_tenant(&self.principal));
        if let Visibility::Approver { tools, .. } = &self.visibility {
            let own = Condition::any().add(thread::Column::UserId.eq(&self.principal.user_id));
            let of_call =
                tool_call::Column::ToolCallId.into_expr().equals((event::Entity, event::Column::ToolCallId));
            let theirs = Query::select()
                .expr(Expr::val(1))
                .from(tool_call::Entity.table_ref())
                .and_where(of_call)
                .cond_where(held().add(tool_call::Column::Name.is_in(tools)))
                .to_owned();
            // The delegate of a call sees what happened to the call until the end of the delegation.
            let call = || (event::Entity, event::Column::ToolCallId).into_column_ref();
            let delegated =
                is_delegated(&self.principal, call(), Expr::col((event::Entity, event::Column::At)));
            let of_tools = self.sees_others().then(|| Expr::exists(theirs));
            let escalated = (!self.principal.roles.is_empty()).then(|| is_escalated(&self.principal, call()));
            of_thread.cond_where(own.add_option(of_tools).add(delegated).add_option(escalated));
        }
        Expr::exists(of_thread)
    }

    /// Returns conditions that each match one index. Together they cover all events that the reader may see,
    /// and as few others as the indexes can exclude.
    fn indexes(&self, about: &ScopedFilter) -> EventIndexes {
        if let Some(named) = &about.index {
            return EventIndexes::one(Condition::all().add(named.clone()).add(about.filter.condition()));
        }
        let Principal { tenant_id, user_id, .. } = &self.principal;
        let tenant = || Condition::all().add(event::Column::TenantId.eq(tenant_id));
        let tools = match &self.visibility {
            // A call of any tool and any user may be opened to the reader.
            Visibility::Approver { delegated_at: Some(_), .. }
            | Visibility::Approver { escalated: true, .. } => {
                return EventIndexes::one(tenant());
            }
            Visibility::Approver { tools, .. } if tools.len() <= TOOLS_MAX => tools,
            Visibility::Approver { .. } | Visibility::Operator => return EventIndexes::one(tenant()),
        };
        let held = tools.iter().map(|tool| {
            // The first condition covers the reader's own events.
            let of_others = event::Column::UserId.ne(user_id);
            tenant().add(event::Column::HeldTool.eq(tool)).add(of_others)
        });
        EventIndexes { first: tenant().add(event::Column::UserId.eq(user_id)), others: held.collect() }
    }
}

/// Conditions that each match one index. No event matches two of them.
struct EventIndexes {
    first: Condition,
    others: Vec<Condition>,
}

impl EventIndexes {
    fn one(first: Condition) -> Self {
        Self { first, others: Vec::new() }
    }
}

impl EventFilter {
    /// Whether the filter names anything.
    fn is_named(&self) -> bool {
        let Self { session, thread, run, call } = self;
        session.is_some() || thread.is_some() || run.is_some() || call.is_some()
    }

    pub(crate) fn condition(&self) -> Condition {
        let Self { session, thread, run, call } = self;
        Condition::all()
            .add_option(session.map(|id| event::Column::SessionId.eq(id.to_string())))
            .add_option(thread.map(|id| event::Column::ThreadId.eq(id.to_string())))
            .add_option(run.map(|id| event::Column::RunId.eq(id.to_string())))
            .add_option(call.map(|id| event::Column::ToolCallId.eq(id.to_string())))
    }
}

/// A filter with the index that has all of its events: those of one run, or of one session.
struct ScopedFilter {
    filter: EventFilter,
    /// `None` if the filter names nothing. The store looks up the run or the session first: the plan of the database
    /// depends on the value.
    index: Option<SimpleExpr>,
}

/// The events after a number, at least up to another number. The range may have later events too.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub after: i64,
    pub last: i64,
}

impl Range {
    /// All events after this number.
    pub fn after(after: i64) -> Self {
        Self { after, last: i64::MAX }
    }

    /// Whether the range has no number.
    pub fn is_empty(self) -> bool {
        self.last <= self.after
    }

    /// Returns up to `most` rows in the order of their numbers, whatever their visibility.
    fn rows(self, indexes: EventIndexes, most: u64) -> SelectStatement {
        let from_index = |index: Condition| {
            Query::select()
                .columns(event::Column::iter())
                .from(event::Entity.table_ref())
                .cond_where(index)
                // No upper bound: with two bounds SQLite would consider any index as good.
                .and_where(event::Column::Seq.gt(self.after))
                .to_owned()
        };
        let mut rows = from_index(indexes.first);
        for index in indexes.others {
            rows.union(UnionType::All, from_index(index));
        }
        rows.order_by(event::Column::Seq, Order::Asc).limit(most).to_owned()
    }
}

/// The result of one scan.
#[derive(Debug)]
pub struct EventsRead {
    pub events: Vec<Event>,
    /// The number up to which the scan went, if the scan did not reach the end of its range.
    pub up_to: Option<i64>,
}

/// Selects the first events of a range that the reader may see, from a limited number of rows.
fn seen(reader: &EventReader, about: &ScopedFilter, range: Range, size: u64) -> SelectStatement {
    let rows = range.rows(reader.indexes(about), rows_for(size));
    Query::select()
        .columns(event::Column::iter())
        .from_subquery(rows, event::Entity)
        .cond_where(about.filter.condition())
        .and_where(reader.sees())
        .order_by(event::Column::Seq, Order::Asc)
        .limit(size.saturating_add(1))
        .to_owned()
}

fn rows_for(size: u64) -> u64 {
    size.saturating_mul(ROWS_PER_EVENT)
}

impl Read {
    /// Returns a page of the events after this number.
    pub async fn events_page(
        &self,
        reader: &EventReader,
        about: &EventFilter,
        after: i64,
        page: PageSize,
    ) -> Result<EventsRead, StoreError> {
        let range = Range::after(after);
        let scoped = self.scoped(about).await?;
        let bytes = self.event_bytes(seen(reader, &scoped, range, page.items), page.items).await?;
        // If no event is visible, the scan covers as many rows as for a whole page.
        let size = if bytes.is_empty() { page.items } else { page.fitting(bytes) };
        self.events_of(reader, &scoped, range, size).await
    }

    /// Returns the events in this range, in the order of their numbers: at most `size`, from at most ten
    /// times as many rows.
    pub async fn events(
        &self,
        reader: &EventReader,
        about: &EventFilter,
        range: Range,
        size: u64,
    ) -> Result<EventsRead, StoreError> {
        self.events_of(reader, &self.scoped(about).await?, range, size).await
    }

    async fn events_of(
        &self,
        reader: &EventReader,
        about: &ScopedFilter,
        range: Range,
        size: u64,
    ) -> Result<EventsRead, StoreError> {
        let reader = &self.narrowed_reader(reader, &about.filter).await?;
        let seen = self.tx.get_database_backend().build(&seen(reader, about, range, size));
        let found = event::Model::find_by_statement(seen).all(&self.tx).await?;
        let Page { items, has_more } = Page::of(found, size);
        let up_to = match items.last() {
            Some(last) if has_more => last.seq,
            _ => self.end_of_look(reader, about, range, size).await?,
        };
        let calls = self.calls_of(&items).await?;
        let events = items.into_iter().filter_map(|row| event(row, &calls)).collect();
        Ok(EventsRead { events, up_to })
    }

    /// Looks up the run of a call, or the session of a thread.
    async fn scoped(&self, about: &EventFilter) -> Result<ScopedFilter, StoreError> {
        let EventFilter { session, thread, run, call } = about;
        let index = if let Some(call) = call {
            let of_call = tool_call::Entity::find_by_id(call.to_string());
            let run: Option<String> =
                of_call.select_only().column(tool_call::Column::RunId).into_tuple().one(&self.tx).await?;
            Some(run.map(|run| event::Column::RunId.eq(run)))
        } else if let Some(run) = run {
            Some(Some(event::Column::RunId.eq(run.to_string())))
        } else if let Some(thread) = thread {
            let of_thread = thread::Entity::find_by_id(thread.to_string());
            let session: Option<String> =
                of_thread.select_only().column(thread::Column::SessionId).into_tuple().one(&self.tx).await?;
            Some(session.map(|session| event::Column::SessionId.eq(session)))
        } else {
            session.map(|session| Some(event::Column::SessionId.eq(session.to_string())))
        };
        // A call or a thread that does not exist has no events.
        let index = index.map(|index| index.unwrap_or_else(|| Expr::value(false)));
        Ok(ScopedFilter { filter: *about, index })
    }

    /// Returns the reader without the parts by which the reader sees no call, for a scan of all threads.
    async fn narrowed_reader(
        &self,
        reader: &EventReader,
        about: &EventFilter,
    ) -> Result<EventReader, StoreError> {
        let EventReader { principal, visibility } = reader.clone();
        let visibility = match about.is_named() {
            true => visibility,
            false => self.narrowed(&principal, &visibility).await?,
        };
        Ok(EventReader { principal, visibility })
    }

    /// Returns the number of the last row of a scan, if more rows may follow.
    async fn end_of_look(
        &self,
        reader: &EventReader,
        about: &ScopedFilter,
        range: Range,
        size: u64,
    ) -> Result<Option<i64>, StoreError> {
        let most = rows_for(size);
        // Numbers have no gaps, so a range has at most as many rows as numbers.
        if u64::try_from(range.last.saturating_sub(range.after)).is_ok_and(|rows| rows < most) {
            return Ok(None);
        }
        let rows = range.rows(reader.indexes(about), most);
        let last = Query::select()
            .column(event::Column::Seq)
            .from_subquery(rows, event::Entity)
            .order_by(event::Column::Seq, Order::Asc)
            .offset(most.saturating_sub(1))
            .limit(1)
            .to_owned();
        let found = self.tx.query_one_raw(self.tx.get_database_backend().build(&last)).await?;
        Ok(found.map(|row| row.try_get_by_index(0)).transpose()?)
    }

    /// Whether the reader may see any event of this run or call.
    pub async fn is_seen(&self, reader: &EventReader, about: &EventFilter) -> Result<bool, StoreError> {
        let EventReader { principal, visibility } = reader;
        let calls = Condition::all()
            .add_option(about.call.map(|id| tool_call::Column::ToolCallId.eq(id.to_string())))
            .add_option(about.run.map(of_run));
        if visible_calls(principal, visibility).filter(calls).one(&self.tx).await?.is_some() {
            return Ok(true);
        }
        let Some(run) = about.run else { return Ok(false) };
        let mut threads = of_tenant(principal);
        if matches!(visibility, Visibility::Approver { .. }) {
            threads = threads.add(thread::Column::UserId.eq(&principal.user_id));
        }
        let own = run::Entity::find_by_id(run.to_string())
            .filter(run::Column::ThreadId.in_subquery(threads_where(threads)));
        Ok(own.count(&self.tx).await? > 0)
    }

    pub(crate) async fn calls_of(
        &self,
        events: &[event::Model],
    ) -> Result<HashMap<String, ToolCall>, StoreError> {
        let mut ids: Vec<&String> = events.iter().filter_map(|row| row.tool_call_id.as_ref()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let named = tool_call::Entity::find().filter(tool_call::Column::ToolCallId.is_in(ids));
        let calls = self.listed_with_decisions(named.all(&self.tx).await?).await?;
        Ok(calls.into_iter().map(|call| (call.id.to_string(), call)).collect())
    }
}

/// Builds an event from all parts of its row that can be read, because a reader waits for the number that
/// follows. Returns `None` for an event without a number.
pub(crate) fn event(row: event::Model, calls: &HashMap<String, ToolCall>) -> Option<Event> {
    const TABLE: &str = "events";
    let event::Model { seq, thread_id, tool_call_id, .. } = &row;
    let unreadable = |column, error: &StoreError| {
        tracing::error!(
            table = TABLE, seq, thread_id, tool_call_id, column, %error, "{}", rows::UNREADABLE
        );
    };
    let known = EventType::of_word(&row.event_type);
    if known.is_none() {
        unreadable("type", &rows::inconsistent(TABLE, format_args!("{:?} is not a type", row.event_type)));
    }
    let data = rows::json(TABLE, &row.data).unwrap_or_else(|error| {
        unreadable("data", &error);
        Map::new()
    });
    Some(Event {
        event_id: row.event_id,
        seq: row.seq?,
        event_type: known.ok_or(row.event_type),
        at: Timestamp::from_micros(row.at),
        actor: row.actor,
        session_id: row.session_id,
        thread_id: row.thread_id,
        run_id: row.run_id,
        data,
        call: row.tool_call_id.as_ref().and_then(|id| calls.get(id).cloned()),
        tool_call_id: row.tool_call_id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::config::Database;
    use holdpoint_core::clock::SystemClock;
    use holdpoint_metrics::Metrics;
    use sea_orm::{DbBackend, Statement};
    use std::sync::Arc;
    use uuid::Uuid;

    fn reader(visibility: Visibility) -> EventReader {
        let principal =
            Principal { tenant_id: "acme".to_owned(), user_id: "alice".to_owned(), roles: Vec::new() };
        EventReader { principal, visibility }
    }

    #[tokio::test]
    async fn on_sqlite_the_rows_of_a_query_come_from_an_index_in_the_order_of_their_numbers() {
        let database = Database::in_memory();
        let store = Store::connect(&database, Arc::new(SystemClock), Metrics::new([], 0.0));
        let store = store.await.unwrap();
        store.migrate().await.unwrap();
        let of_tools = |tools: &[&str]| Visibility::Approver {
            tools: tools.iter().map(|tool| (*tool).to_owned()).collect(),
            delegated_at: None,
            escalated: false,
        };
        let opened =
            |delegated_at, escalated| Visibility::Approver { tools: Vec::new(), delegated_at, escalated };
        let (delegate, role) = (opened(Some(Timestamp::from_micros(1)), false), opened(None, true));
        let (user, operator) = (of_tools(&[]), Visibility::Operator);
        let approver = of_tools(&["pay", "refund"]);
        let id = Uuid::nil();
        let none = EventFilter::default();
        let scoped = |filter, index| ScopedFilter { filter, index };
        let (of_session, of_run) = (event::Column::SessionId.eq("x"), event::Column::RunId.eq("x"));
        let about = scoped(none, None);
        let of_thread = EventFilter { thread: Some(ThreadId::new(id)), ..none };
        let thread = scoped(of_thread, Some(of_session.clone()));
        let session = EventFilter { session: Some(ThreadId::new(id)), ..none };
        let session = scoped(session, Some(of_session));
        let run = scoped(EventFilter { run: Some(RunId::new(id)), ..none }, Some(of_run.clone()));
        let call = scoped(EventFilter { call: Some(ToolCallId::new(id)), ..none }, Some(of_run));
        for (visibility, about, indexes) in [
            (&user, &about, &["events_user"][..]),
            (&operator, &about, &["events_tenant"]),
            (&delegate, &about, &["events_tenant"]),
            (&role, &about, &["events_tenant"]),
            (&approver, &about, &["events_held", "events_held", "events_user"]),
            (&user, &thread, &["events_session"]),
            (&approver, &thread, &["events_session"]),
            (&operator, &session, &["events_session"]),
            (&approver, &run, &["events_run"]),
            (&approver, &call, &["events_run"]),
        ] {
            let statement = seen(&reader(visibility.clone()), about, Range::after(7), 16);
            let read = store.read().await.unwrap();
            let Statement { sql, values, .. } = DbBackend::Sqlite.build(&statement);
            let sql = format!("EXPLAIN QUERY PLAN {sql}");
            let plan = Statement { sql, values, db_backend: DbBackend::Sqlite };
            let plan = read.tx.query_all_raw(plan).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.try_get("", "detail").unwrap()).collect();
            let mut used: Vec<&str> = plan
                .iter()
                .filter_map(|step| step.strip_prefix("SEARCH events USING INDEX "))
                .map(|step| step.split(' ').next().unwrap())
                .collect();
            used.sort_unstable();
            assert_eq!(used, indexes, "{plan:#?}");
            let ranges = plan.iter().filter(|step| step.ends_with("seq>?)"));
            assert_eq!(ranges.count(), indexes.len(), "{plan:#?}");
        }
    }
}
