//! Calls as deciders see them: also those of other users' threads, by the decider's roles.

use super::entity::{thread, tool_call};
use super::threads::{listed, of_tenant};
use super::{Page, PageSize, Read, StoreError, Thread, rows};
use crate::domain::Principal;
use crate::domain::call::{StateKind, ToolCall};
use crate::domain::id::{ThreadId, ToolCallId};
use crate::domain::quorum::ApprovalVote;
use sea_orm::{
    ColumnTrait, Condition, EntityTrait, JoinType, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect,
    RelationTrait, Select,
};
use std::collections::HashMap;

/// The visible calls of a tenant besides those of the viewer's own threads.
#[derive(Debug, Clone)]
pub(crate) enum Visibility {
    /// The held calls of these tools, whose approver the viewer is.
    Approver(Vec<String>),
    /// All calls, for an operator.
    Operator,
}

/// The threads in which a query searches for calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallScope {
    /// In all threads.
    Anywhere,
    /// In this thread.
    Thread(ThreadId),
    /// In the threads of this session.
    Session(ThreadId),
}

/// The held calls to list.
#[derive(Debug)]
pub(crate) struct Listing<'a> {
    /// Where the calls are.
    pub(crate) scope: CallScope,
    /// The state of the calls.
    pub(crate) state: StateKind,
    /// The tool of the calls, or `None` for all tools.
    pub(crate) tool: Option<&'a str>,
    /// Only calls before this one.
    pub(crate) before: Option<ToolCallId>,
    /// The size limit of the page.
    pub(crate) page: PageSize,
}

/// A visible held call, and its thread. This gives the viewer no right to read anything else of the thread.
#[derive(Debug)]
pub(crate) struct VisibleCall {
    /// The call.
    pub(crate) call: ToolCall,
    /// The thread of the call.
    pub(crate) thread: Thread,
    /// The approvals of the call: their actors and their inputs.
    pub(crate) votes: Vec<ApprovalVote>,
}

/// Selects held calls. Literal, not a bind parameter, so that the partial index `tool_calls_inbox` is usable.
pub(super) fn held() -> Condition {
    Condition::all().add(tool_call::Column::Held.into_expr())
}

/// Selects the visible calls in the threads of the principal's tenant that are not deleted.
fn visible_to(principal: &Principal, visibility: &Visibility) -> Condition {
    let theirs = match visibility {
        Visibility::Operator => Condition::all(),
        Visibility::Approver(tools) => {
            let own = Condition::any().add(thread::Column::UserId.eq(&principal.user_id));
            let theirs = held().add(tool_call::Column::Name.is_in(tools));
            // Without calls of other users, the database can start from the principal's own threads.
            if tools.is_empty() { own } else { own.add(theirs) }
        }
    };
    of_tenant(principal).add(tool_call::Column::TenantId.eq(&principal.tenant_id)).add(theirs)
}

impl CallScope {
    fn condition(self) -> Condition {
        match self {
            Self::Anywhere => Condition::all(),
            Self::Thread(id) => Condition::all().add(tool_call::Column::ThreadId.eq(id.to_string())),
            Self::Session(id) => Condition::all().add(thread::Column::SessionId.eq(id.to_string())),
        }
    }
}

/// Returns the calls that this principal may see.
pub(super) fn visible_calls(principal: &Principal, visibility: &Visibility) -> Select<tool_call::Entity> {
    tool_call::Entity::find()
        .join(JoinType::InnerJoin, tool_call::Relation::Thread.def())
        .filter(visible_to(principal, visibility))
}

impl Read {
    /// Returns a call of the principal's tenant that the principal may see.
    pub(crate) async fn visible_call(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        id: ToolCallId,
    ) -> Result<Option<(ToolCall, Thread)>, StoreError> {
        let found =
            visible_calls(principal, visibility).filter(tool_call::Column::ToolCallId.eq(id.to_string()));
        let found = found.one(&self.tx).await?;
        let seen = self.with_threads(found.into_iter().collect()).await?;
        Ok(seen.into_iter().next())
    }

    /// Returns the held calls that this principal may see, newest first, with their approvals.
    pub(crate) async fn visible_holds(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        listing: &Listing<'_>,
    ) -> Result<Page<VisibleCall>, StoreError> {
        let mut query = visible_calls(principal, visibility)
            .filter(listed())
            .filter(listing.scope.condition())
            .filter(held())
            .filter(tool_call::Column::State.eq(listing.state));
        if let Some(tool) = listing.tool {
            query = query.filter(tool_call::Column::Name.eq(tool));
        }
        if let Some(before) = listing.before {
            query = query.filter(tool_call::Column::ToolCallId.lt(before.to_string()));
        }
        let newest = query.order_by_desc(tool_call::Column::ToolCallId);
        let fitting = self.fitting_calls(newest.clone(), listing.page).await?;
        let found = newest.limit(fitting.saturating_add(1)).all(&self.tx).await?;
        let Page { items, has_more } = Page::of(found, fitting);
        let ids = items.iter().map(|row| row.tool_call_id.clone()).collect();
        let mut votes = self.votes(ids).await?;
        let seen = self.with_threads(items).await?.into_iter().map(|(call, thread)| {
            let votes = votes.remove(&call.id.to_string()).unwrap_or_default();
            VisibleCall { call, thread, votes }
        });
        Ok(Page { items: seen.collect(), has_more })
    }

    /// Whether this scope exists for the principal. Own threads exist, and for an operator all threads of the
    /// tenant. Another user's scope exists if it has a held call that the principal may see.
    pub(crate) async fn is_visible(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        place: CallScope,
    ) -> Result<bool, StoreError> {
        let named = Condition::all();
        let named = match place {
            CallScope::Anywhere => return Ok(true),
            CallScope::Thread(id) => named.add(thread::Column::ThreadId.eq(id.to_string())),
            CallScope::Session(id) => {
                let root = named.add(thread::Column::ParentId.is_null());
                root.add(thread::Column::ThreadId.eq(id.to_string()))
            }
        };
        let mut own = thread::Entity::find().filter(of_tenant(principal)).filter(named);
        if matches!(visibility, Visibility::Approver(_)) {
            own = own.filter(thread::Column::UserId.eq(&principal.user_id));
        }
        if own.count(&self.tx).await? > 0 {
            return Ok(true);
        }
        let seen = visible_calls(principal, visibility).filter(place.condition()).filter(held());
        Ok(seen.one(&self.tx).await?.is_some())
    }

    async fn with_threads(
        &self,
        found: Vec<tool_call::Model>,
    ) -> Result<Vec<(ToolCall, Thread)>, StoreError> {
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let ids = found.iter().map(|row| row.thread_id.clone());
        let threads =
            thread::Entity::find().filter(thread::Column::ThreadId.is_in(ids)).all(&self.tx).await?;
        let read = |row: thread::Model| rows::listed("threads", &row.thread_id.clone(), Thread::of(row));
        let threads: HashMap<ThreadId, Thread> =
            threads.into_iter().filter_map(read).map(|thread| (thread.id, thread)).collect();
        let with_thread = |call: ToolCall| {
            let thread = threads.get(&call.thread_id).cloned()?;
            Some((call, thread))
        };
        Ok(self.listed_with_decisions(found).await?.into_iter().filter_map(with_thread).collect())
    }
}
