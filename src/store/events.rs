//! Events: one row for each change, in its transaction. They hold hashes, never inputs or results; who reads one reads
//! those from the call, as it stands.

use super::entity::{event, thread, tool_call};
use super::inbox::held;
use super::threads::of_tenant;
use super::{Page, PageSize, Read, Sight, StoreError, Thread, Write, rows};
use crate::domain::Principal;
use crate::domain::call::ToolCall;
use crate::domain::clock::Timestamp;
use crate::domain::event::{Event, EventType, system};
use crate::domain::id::{RunId, ThreadId, ToolCallId};
use sea_orm::ActiveValue::{NotSet, Set};
use sea_orm::{ColumnTrait, Condition, EntityTrait, JoinType, QueryFilter, QueryOrder, QuerySelect, Select};
use serde_json::Value;
use std::collections::HashMap;

/// What an event is about.
pub(super) struct Subject<'a> {
    pub(super) thread: &'a Thread,
    pub(super) run_id: RunId,
    pub(super) tool_call_id: Option<ToolCallId>,
}

impl Write {
    pub(super) async fn event(
        &self,
        event_type: EventType,
        actor: &str,
        subject: &Subject<'_>,
        data: Value,
    ) -> Result<(), StoreError> {
        let row = event::ActiveModel {
            event_id: Set(self.clock.uuid().to_string()),
            seq: NotSet,
            event_type: Set(event_type.as_str().to_owned()),
            at: Set(self.now.as_micros()),
            actor: Set(actor.to_owned()),
            tenant_id: Set(subject.thread.tenant_id.clone()),
            session_id: Set(subject.thread.session_id.to_string()),
            thread_id: Set(subject.thread.id.to_string()),
            run_id: Set(Some(subject.run_id.to_string())),
            tool_call_id: Set(subject.tool_call_id.map(|id| id.to_string())),
            data: Set(data.to_string()),
        };
        #[cfg(feature = "torture")]
        self.name.set(event_type.as_str(), subject.tool_call_id.as_ref().map(|id| id as _));
        event::Entity::insert(row).exec_without_returning(&self.tx).await?;
        self.count(event_type, actor, &data);
        Ok(())
    }
}

/// Somebody who reads events: of all their own threads, and what they see of others'.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) principal: Principal,
    pub(crate) sight: Sight,
}

/// Which events are wanted; what is not said is not asked for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About {
    pub(crate) session: Option<ThreadId>,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) run: Option<RunId>,
    pub(crate) call: Option<ToolCallId>,
}

impl Reader {
    /// Whether anything of another user may be theirs to see.
    pub(crate) fn sees_others(&self) -> bool {
        !matches!(&self.sight, Sight::Approver(tools) if tools.is_empty())
    }

    /// The predicate, over an event's thread and its call, if it has one.
    fn condition(&self) -> Condition {
        let of_tenant = of_tenant(&self.principal).add(event::Column::TenantId.eq(&self.principal.tenant_id));
        let Sight::Approver(tools) = &self.sight else { return of_tenant };
        let own = Condition::any().add(thread::Column::UserId.eq(&self.principal.user_id));
        let theirs = held().add(tool_call::Column::Name.is_in(tools));
        of_tenant.add(if self.sees_others() { own.add(theirs) } else { own })
    }
}

impl About {
    fn condition(&self) -> Condition {
        let Self { session, thread, run, call } = self;
        Condition::all()
            .add_option(session.map(|id| event::Column::SessionId.eq(id.to_string())))
            .add_option(thread.map(|id| event::Column::ThreadId.eq(id.to_string())))
            .add_option(run.map(|id| event::Column::RunId.eq(id.to_string())))
            .add_option(call.map(|id| event::Column::ToolCallId.eq(id.to_string())))
    }
}

/// What has a number behind this one, in the order of the numbers.
fn events_after(reader: &Reader, about: &About, after: i64) -> Select<event::Entity> {
    let of_thread = event::Entity::belongs_to(thread::Entity)
        .from(event::Column::ThreadId)
        .to(thread::Column::ThreadId)
        .into();
    let of_call = event::Entity::belongs_to(tool_call::Entity)
        .from(event::Column::ToolCallId)
        .to(tool_call::Column::ToolCallId)
        .into();
    event::Entity::find()
        .join(JoinType::InnerJoin, of_thread)
        .join(JoinType::LeftJoin, of_call)
        .filter(event::Column::Seq.gt(after))
        .filter(reader.condition())
        .filter(about.condition())
        .order_by_asc(event::Column::Seq)
}

impl Read {
    /// A page of what has a number behind this one.
    pub(crate) async fn events_page(
        &self,
        reader: &Reader,
        about: &About,
        after: i64,
        page: PageSize,
    ) -> Result<Page<Event>, StoreError> {
        let fitting = self.fitting_events(events_after(reader, about, after), page).await?;
        self.events(reader, about, after, fitting).await
    }

    /// What has a number behind this one, in the order of the numbers.
    pub(crate) async fn events(
        &self,
        reader: &Reader,
        about: &About,
        after: i64,
        size: u64,
    ) -> Result<Page<Event>, StoreError> {
        let query = events_after(reader, about, after);
        let found = query.limit(size.saturating_add(1)).all(&self.tx).await?;
        let page = Page::of(found, size);
        let calls = self.calls_of(&page.items).await?;
        let items = page.items.into_iter().map(|row| event(row, &calls)).collect::<Result<_, _>>()?;
        Ok(Page { items, has_more: page.has_more })
    }

    async fn calls_of(&self, events: &[event::Model]) -> Result<HashMap<String, ToolCall>, StoreError> {
        let mut ids: Vec<&String> = events.iter().filter_map(|row| row.tool_call_id.as_ref()).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let named = tool_call::Entity::find().filter(tool_call::Column::ToolCallId.is_in(ids));
        let calls = self.with_decisions(named.all(&self.tx).await?).await?;
        Ok(calls.into_iter().map(|call| (call.id.to_string(), call)).collect())
    }
}

fn event(row: event::Model, calls: &HashMap<String, ToolCall>) -> Result<Event, StoreError> {
    const TABLE: &str = "events";
    let event_type = EventType::ALL.iter().find(|known| known.as_str() == row.event_type);
    let unknown = || rows::inconsistent(TABLE, format_args!("{:?} is not a type", row.event_type));
    Ok(Event {
        seq: row.seq.ok_or_else(|| rows::inconsistent(TABLE, "seq is missing"))?,
        event_type: *event_type.ok_or_else(unknown)?,
        at: Timestamp::from_micros(row.at),
        actor: row.actor,
        session_id: rows::id(TABLE, &row.session_id)?,
        thread_id: rows::id(TABLE, &row.thread_id)?,
        run_id: row.run_id.map(|id| rows::id(TABLE, &id)).transpose()?,
        data: rows::json(TABLE, &row.data)?,
        call: row.tool_call_id.and_then(|id| calls.get(&id).cloned()),
    })
}

/// The state that an event says a call has come to.
pub(super) fn state_reached(event: EventType, actor: &str, data: &Value) -> Option<&'static str> {
    Some(match event {
        EventType::ToolRequiresApproval => "pending",
        EventType::ToolApproved => "approved",
        EventType::ToolRejected | EventType::ToolBlocked => "rejected",
        EventType::ToolExpired => "expired",
        EventType::ToolCancelled => "cancelled",
        EventType::ToolStarted => "executing",
        EventType::ToolSucceeded => "succeeded",
        EventType::ToolFailed if actor == system::INVALID => "invalid",
        EventType::ToolFailed => "failed",
        // It will be begun again.
        EventType::ToolInterrupted if data.get("state").is_some_and(|it| it == "approved") => "approved",
        EventType::ToolInterrupted => "interrupted",
        EventType::ToolCalled
        | EventType::RunStarted
        | EventType::RunWaiting
        | EventType::RunResumed
        | EventType::RunCompleted
        | EventType::RunFailed
        | EventType::RunCancelled => return None,
    })
}
