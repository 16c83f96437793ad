//! Calls as those see them who decide: of others' threads too, by their roles.

use super::entity::{thread, tool_call};
use super::threads::of_tenant;
use super::{Page, PageSize, Read, StoreError, Thread, rows};
use crate::domain::Principal;
use crate::domain::call::ToolCall;
use crate::domain::id::{ThreadId, ToolCallId};
use crate::domain::quorum::ApprovalVote;
use sea_orm::{
    ColumnTrait, Condition, EntityTrait, JoinType, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect,
    Select,
};
use std::collections::HashMap;

/// What somebody sees of their tenant's calls, beside those of their own threads.
#[derive(Debug, Clone)]
pub(crate) enum Visibility {
    /// The held ones of these tools, whose approver they are.
    Approver(Vec<String>),
    /// All: they operate the server.
    Operator,
}

/// Where to look for calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallScope {
    /// In every thread.
    Anywhere,
    /// In this thread.
    Thread(ThreadId),
    /// In the threads of this session.
    Session(ThreadId),
}

/// Which held calls to list.
#[derive(Debug)]
pub(crate) struct Listing<'a> {
    /// Where they are.
    pub(crate) scope: CallScope,
    /// How they stand.
    pub(crate) state: &'a str,
    /// Of which tool, if not of all.
    pub(crate) tool: Option<&'a str>,
    /// Only those before this one.
    pub(crate) before: Option<ToolCallId>,
    /// How many at most.
    pub(crate) page: PageSize,
}

/// A held call that somebody sees, and its thread; of that nothing else is theirs to read by this.
#[derive(Debug)]
pub(crate) struct VisibleCall {
    /// The call.
    pub(crate) call: ToolCall,
    /// Its thread.
    pub(crate) thread: Thread,
    /// Who said yes to it, and to what.
    pub(crate) votes: Vec<ApprovalVote>,
}

/// Said as the index of the inbox says it: what compares with a parameter could be either for all a database knows.
pub(super) fn held() -> Condition {
    Condition::all().add(tool_call::Column::Held.into_expr())
}

/// What of the calls of standing threads of their tenant is somebody's to see.
fn visible_to(principal: &Principal, visibility: &Visibility) -> Condition {
    let theirs = match visibility {
        Visibility::Operator => Condition::all(),
        Visibility::Approver(tools) => {
            let own = Condition::any().add(thread::Column::UserId.eq(&principal.user_id));
            let theirs = held().add(tool_call::Column::Name.is_in(tools));
            // Where there is nothing but their own, the database can begin at their threads.
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

/// The calls that this principal may see.
pub(super) fn visible_calls(principal: &Principal, visibility: &Visibility) -> Select<tool_call::Entity> {
    let of_threads = tool_call::Entity::belongs_to(thread::Entity)
        .from(tool_call::Column::ThreadId)
        .to(thread::Column::ThreadId)
        .into();
    tool_call::Entity::find().join(JoinType::InnerJoin, of_threads).filter(visible_to(principal, visibility))
}

impl Read {
    /// A call of a thread of the principal's tenant that they may see.
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

    /// The held calls that this principal may see, newest first, with who said yes to them.
    pub(crate) async fn visible_holds(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        listing: &Listing<'_>,
    ) -> Result<Page<VisibleCall>, StoreError> {
        let mut query = visible_calls(principal, visibility)
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
            VisibleCall { call, thread, votes: votes }
        });
        Ok(Page { items: seen.collect(), has_more })
    }

    /// Whether there is such a place for this principal: of their own or for operators a thread, and for others one
    /// with a held call that they may see.
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
