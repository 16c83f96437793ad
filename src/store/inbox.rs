//! Calls as deciders see them: also those of other users' threads, by the decider's roles.

use super::entity::{thread, tool_call};
use super::opened::{delegated_calls, escalated_calls};
use super::search::has_text;
use super::threads::{listed, of_tenant};
use super::{Page, PageSize, Read, StoreError, Thread, rows};
use crate::domain::Principal;
use crate::domain::call::{StateKind, ToolCall};
use crate::domain::clock::Timestamp;
use crate::domain::delegation::Delegation;
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
    /// The held calls that the viewer may decide by a role or in place of another person.
    Approver {
        /// The tools whose approver the viewer is.
        tools: Vec<String>,
        /// The time at which calls have to be delegated to the viewer. `None` leaves delegated calls out.
        delegated_at: Option<Timestamp>,
        /// Whether calls that were escalated to a role of the viewer are visible.
        escalated: bool,
    },
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
    /// The text that a call has to have, or `None` for all calls.
    pub(crate) text: Option<&'a str>,
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
    /// The delegations of the call that no later one has replaced.
    pub(crate) delegations: Vec<Delegation>,
}

/// Selects held calls. Literal, not a bind parameter, so that the partial index `tool_calls_inbox` is usable.
pub(super) fn held() -> Condition {
    Condition::all().add(tool_call::Column::Held.into_expr())
}

/// Selects the visible calls in the threads of the principal's tenant that are not deleted.
pub(super) fn visible_to(principal: &Principal, visibility: &Visibility) -> Condition {
    let theirs = match visibility {
        Visibility::Operator => Condition::all(),
        Visibility::Approver { tools, delegated_at, escalated } => {
            let own = Condition::any().add(thread::Column::UserId.eq(&principal.user_id));
            // Without calls of other users, the database can start from the principal's own threads.
            let of_tools = (!tools.is_empty()).then(|| held().add(tool_call::Column::Name.is_in(tools)));
            let delegated = delegated_at
                .map(|at| tool_call::Column::ToolCallId.in_subquery(delegated_calls(principal, at)));
            let escalated = (*escalated && !principal.roles.is_empty())
                .then(|| tool_call::Column::ToolCallId.in_subquery(escalated_calls(principal)));
            own.add_option(of_tools).add_option(delegated).add_option(escalated)
        }
    };
    of_tenant(principal).add(tool_call::Column::TenantId.eq(&principal.tenant_id)).add(theirs)
}

impl CallScope {
    pub(super) fn condition(self) -> Condition {
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

    /// Returns this visibility without the parts by which the principal sees no call. A statement about many calls is
    /// slower with them.
    pub(super) async fn narrowed(
        &self,
        principal: &Principal,
        visibility: &Visibility,
    ) -> Result<Visibility, StoreError> {
        let mut narrowed = visibility.clone();
        if let Visibility::Approver { delegated_at, escalated, .. } = &mut narrowed {
            if let Some(at) = *delegated_at
                && !self.has_delegations(principal, at).await?
            {
                *delegated_at = None;
            }
            *escalated = *escalated && self.has_escalations(principal).await?;
        }
        Ok(narrowed)
    }

    /// Returns the held calls that this principal may see, newest first, with their approvals.
    pub(crate) async fn visible_holds(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        listing: &Listing<'_>,
    ) -> Result<Page<VisibleCall>, StoreError> {
        let visibility = self.narrowed(principal, visibility).await?;
        let mut query = visible_calls(principal, &visibility)
            .filter(listed())
            .filter(listing.scope.condition())
            .filter(held())
            .filter(tool_call::Column::State.eq(listing.state));
        if let Some(tool) = listing.tool {
            query = query.filter(tool_call::Column::Name.eq(tool));
        }
        if let Some(text) = listing.text {
            query = query.filter(has_text(principal, listing.state, text));
        }
        if let Some(before) = listing.before {
            query = query.filter(tool_call::Column::ToolCallId.lt(before.to_string()));
        }
        let newest = query.order_by_desc(tool_call::Column::ToolCallId);
        let fitting = self.fitting_calls(newest.clone(), listing.page).await?;
        let found = newest.limit(fitting.saturating_add(1)).all(&self.tx).await?;
        let Page { items, has_more } = Page::of(found, fitting);
        let ids: Vec<String> = items.iter().map(|row| row.tool_call_id.clone()).collect();
        let mut delegations = self.delegations(ids.clone()).await?;
        let mut votes = self.votes(ids).await?;
        let seen = self.with_threads(items).await?.into_iter().map(|(call, thread)| {
            let votes = votes.remove(&call.id.to_string()).unwrap_or_default();
            let delegations = delegations.remove(&call.id.to_string()).unwrap_or_default();
            VisibleCall { call, thread, votes, delegations }
        });
        Ok(Page { items: seen.collect(), has_more })
    }

    /// Returns the pending held calls in the threads of a session, with their threads.
    pub(crate) async fn pending_holds_of_session(
        &self,
        session: ThreadId,
    ) -> Result<Vec<(ToolCall, Thread)>, StoreError> {
        let found = tool_call::Entity::find()
            .join(JoinType::InnerJoin, tool_call::Relation::Thread.def())
            .filter(listed())
            .filter(thread::Column::SessionId.eq(session.to_string()))
            .filter(held())
            .filter(tool_call::Column::State.eq(StateKind::Pending))
            .order_by_asc(tool_call::Column::ToolCallId);
        self.with_threads(found.all(&self.tx).await?).await
    }

    /// Whether this scope exists for the principal. Own threads exist, and for an operator all threads of the
    /// tenant. Another user's scope exists if it has a held call that the principal may see.
    pub(crate) async fn is_visible(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        scope: CallScope,
    ) -> Result<bool, StoreError> {
        let named = Condition::all();
        let named = match scope {
            CallScope::Anywhere => return Ok(true),
            CallScope::Thread(id) => named.add(thread::Column::ThreadId.eq(id.to_string())),
            CallScope::Session(id) => {
                let root = named.add(thread::Column::ParentId.is_null());
                root.add(thread::Column::ThreadId.eq(id.to_string()))
            }
        };
        let mut own = thread::Entity::find().filter(of_tenant(principal)).filter(named);
        if matches!(visibility, Visibility::Approver { .. }) {
            own = own.filter(thread::Column::UserId.eq(&principal.user_id));
        }
        if own.count(&self.tx).await? > 0 {
            return Ok(true);
        }
        let seen = visible_calls(principal, visibility).filter(scope.condition()).filter(held());
        Ok(seen.one(&self.tx).await?.is_some())
    }

    /// Returns calls with their threads. A call or a thread that cannot be read is left out.
    pub(super) async fn with_threads(
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
