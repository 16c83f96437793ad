//! Calls as deciders see them: also those of other users' threads, by the decider's roles.

use crate::decision::opened::{delegations_to, is_delegated, is_escalated};
use crate::decision::search::{has_text, searched};
use crate::entity::{delegation, escalation, thread, tool_call};
use crate::sql::newest::{BYTES, Branch, ID, in_order};
use crate::sql::paging::CALL_BYTES;
use crate::sql::words::literal;
use crate::thread::threads::of_tenant;
use crate::{Page, PageSize, Read, StoreError, Thread, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::{StateKind, ToolCall};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::delegation::Delegation;
use holdpoint_core::id::{ThreadId, ToolCallId};
use holdpoint_core::quorum::ApprovalVote;
use sea_orm::sea_query::{Expr, ExprTrait, IntoColumnRef, Order, Query, SelectStatement, SimpleExpr};
use sea_orm::{
    ColumnTrait, Condition, EntityName, EntityTrait, JoinType, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, RelationTrait, Select,
};
use std::collections::HashMap;

/// The id of a call, as an expression that no index has.
const BY_CALL: &str = "tool_calls.tool_call_id || ''";
const BY_DELEGATION: &str = "delegations.tool_call_id || ''";

/// The visible calls of a tenant besides those of the viewer's own threads.
#[derive(Debug, Clone)]
pub enum Visibility {
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
pub enum CallScope {
    /// In all threads.
    Anywhere,
    Thread(ThreadId),
    Session(ThreadId),
}

/// The held calls to list.
#[derive(Debug)]
pub struct Listing<'a> {
    /// Where the calls are.
    pub scope: CallScope,
    pub state: StateKind,
    /// The tool of the calls, or `None` for all tools.
    pub tool: Option<&'a str>,
    /// The text that a call has to have, or `None` for all calls.
    pub text: Option<&'a str>,
    /// Only calls before this one.
    pub before: Option<ToolCallId>,
    pub page: PageSize,
}

/// A visible held call, and its thread. This gives the viewer no right to read anything else of the thread.
#[derive(Debug)]
pub struct VisibleCall {
    pub call: ToolCall,
    pub thread: Thread,
    /// The approvals of the call: their actors and their inputs.
    pub votes: Vec<ApprovalVote>,
    /// The delegations of the call that no later one has replaced.
    pub delegations: Vec<Delegation>,
}

/// Selects pending calls of some threads. The expression is one that no index has: the indexes of all pending calls would
/// be read from end to end.
pub(crate) fn is_pending() -> SimpleExpr {
    Expr::cust("tool_calls.state || ''").eq(StateKind::Pending.word())
}

/// Selects held calls.
pub(crate) fn held() -> Condition {
    Condition::all().add(tool_call::Column::Held.into_expr())
}

/// Selects the visible calls in the threads of the principal's tenant that are not deleted.
pub(crate) fn visible_to(principal: &Principal, visibility: &Visibility) -> Condition {
    of_tenant(principal)
        .add(tool_call::Column::TenantId.eq(&principal.tenant_id))
        .add(of_viewer(principal, visibility))
}

/// Selects the visible calls, given the threads of the principal's tenant that are not deleted.
pub(crate) fn of_viewer(principal: &Principal, visibility: &Visibility) -> Condition {
    let call = || (tool_call::Entity, tool_call::Column::ToolCallId).into_column_ref();
    match visibility {
        Visibility::Operator => Condition::all(),
        Visibility::Approver { tools, delegated_at, escalated } => {
            let own = Condition::any().add(thread::Column::UserId.eq(&principal.user_id));
            // Without calls of other users, the database can start from the principal's own threads.
            let of_tools = (!tools.is_empty()).then(|| held().add(tool_call::Column::Name.is_in(tools)));
            let delegated =
                delegated_at.map(|at| is_delegated(principal, call(), Expr::value(at.as_micros())));
            let escalated =
                (*escalated && !principal.roles.is_empty()).then(|| is_escalated(principal, call()));
            own.add_option(of_tools).add_option(delegated).add_option(escalated)
        }
    }
}

/// Orders by an expression of an id, newest first, so by no index. A statement that begins at a few rows of another table is meant to
/// sort them. Without statistics Postgres would read all ids from the newest one on instead.
pub(crate) fn sorted(select: &mut SelectStatement, by: SimpleExpr) -> SelectStatement {
    select.order_by_expr(by, Order::Desc).to_owned()
}

impl Listing<'_> {
    /// Selects calls by their ids, with their bytes, at most one more than a page has.
    fn select(&self, which: Condition) -> SelectStatement {
        Query::select()
            .expr_as(tool_call::Column::ToolCallId.into_expr(), ID)
            .expr_as(Expr::cust(CALL_BYTES), BYTES)
            .cond_where(which.add_option(self.tool.map(|tool| tool_call::Column::Name.eq(tool))))
            .and_where(tool_call::Column::ListedFor.is_not_null())
            .limit(self.page.items.saturating_add(1))
            .to_owned()
    }

    fn has_state(&self, state: impl ColumnTrait) -> SimpleExpr {
        ExprTrait::eq(state.into_expr(), literal(self.state))
    }

    /// Selects calls of this list, with their threads.
    fn with_threads(&self, which: Condition) -> SelectStatement {
        let id = tool_call::Column::ToolCallId;
        let of_thread =
            tool_call::Column::ThreadId.into_expr().equals((thread::Entity, thread::Column::ThreadId));
        let which = which
            .add(self.has_state(tool_call::Column::State))
            .add_option(self.before.map(|before| id.lt(before.to_string())));
        self.select(which).inner_join(thread::Entity.table_ref(), of_thread).to_owned()
    }

    /// Selects the newest calls of this list with this value in a column, in the order of the index of that column.
    fn newest(&self, principal: &Principal, branch: Branch<tool_call::Column>) -> SelectStatement {
        let of_tenant = tool_call::Column::TenantId.eq(&principal.tenant_id);
        let mut select = self.select(Condition::all().add(of_tenant));
        select.from(tool_call::Entity.table_ref());
        if !matches!(branch.column, tool_call::Column::State) {
            select.and_where(self.has_state(tool_call::Column::State));
        }
        let before = self.before.map(|before| before.to_string());
        in_order(&mut select, branch, tool_call::Column::ToolCallId, before);
        select
    }

    /// Selects the calls of this list that the principal may see. No branch reads calls that the principal may not see,
    /// but for those of one thread or session, and those that a search reads.
    fn branches(&self, principal: &Principal, visibility: &Visibility) -> Vec<SelectStatement> {
        if let Some(text) = self.text {
            let which = visible_to(principal, visibility).add(self.scope.condition()).add(has_text(text));
            let mut select = self.with_threads(which);
            select.from_subquery(searched(principal, self.state), tool_call::Entity);
            return vec![sorted(&mut select, Expr::cust(BY_CALL))];
        }
        if !matches!(self.scope, CallScope::Anywhere) {
            let seen = of_tenant(principal).add(of_viewer(principal, visibility));
            let mut select = self.with_threads(seen.add(self.scope.condition()));
            select.from(tool_call::Entity.table_ref());
            return vec![sorted(&mut select, Expr::cust(BY_CALL))];
        }
        let of_tool = |tool: &str| {
            self.newest(principal, Branch { column: tool_call::Column::Name, value: Expr::value(tool) })
        };
        let Visibility::Approver { tools, delegated_at, escalated } = visibility else {
            let all = || {
                self.newest(
                    principal,
                    Branch { column: tool_call::Column::State, value: literal(self.state) },
                )
            };
            return vec![self.tool.map_or_else(all, of_tool)];
        };
        let own = self.newest(
            principal,
            Branch { column: tool_call::Column::ListedFor, value: Expr::value(&principal.user_id) },
        );
        let is_listed = |tool: &&String| self.tool.is_none_or(|listed| listed == *tool);
        let of_tools = tools.iter().filter(is_listed).map(|tool| of_tool(tool));
        let delegated = delegated_at.map(|at| self.delegated(principal, at));
        let roles = principal.roles.iter().filter(|_| *escalated);
        let of_roles = roles.map(|role| self.escalated_to(principal, role));
        [own].into_iter().chain(of_tools).chain(delegated).chain(of_roles).collect()
    }

    /// Selects ids of calls of this list that another table has, with their bytes. The values of the call are subqueries,
    /// so that the database begins at the other table, whatever its statistics.
    fn opened(&self, id: impl ColumnTrait) -> SelectStatement {
        let of_call = |value: SimpleExpr| {
            let is_it = tool_call::Column::ToolCallId.into_expr().eq(id.into_expr());
            let call = Query::select()
                .expr(value)
                .from(tool_call::Entity.table_ref())
                .and_where(is_it)
                .and_where(tool_call::Column::ListedFor.is_not_null())
                .and_where(self.has_state(tool_call::Column::State))
                .to_owned();
            SimpleExpr::from(call)
        };
        let name = of_call(tool_call::Column::Name.into_expr());
        let is_listed = match self.tool {
            Some(tool) => ExprTrait::eq(name, tool),
            None => name.is_not_null(),
        };
        Query::select()
            .expr_as(id.into_expr(), ID)
            .expr_as(of_call(Expr::cust(CALL_BYTES)), BYTES)
            .and_where(is_listed)
            .limit(self.page.items.saturating_add(1))
            .to_owned()
    }

    /// Selects the calls of this list that are delegated to the principal. It reads all delegations in force.
    fn delegated(&self, principal: &Principal, at: Timestamp) -> SelectStatement {
        let id = delegation::Column::ToolCallId;
        let before = self.before.map(|before| id.lt(before.to_string()));
        let mut select = self.opened(id);
        select
            .from(delegation::Entity.table_ref())
            .cond_where(delegations_to(principal, at).add_option(before));
        sorted(&mut select, Expr::cust(BY_DELEGATION))
    }

    /// Selects the calls of this list that were escalated to a role.
    fn escalated_to(&self, principal: &Principal, role: &str) -> SelectStatement {
        let mut select = self.opened(escalation::Column::ToolCallId);
        select
            .from(escalation::Entity.table_ref())
            .and_where(escalation::Column::TenantId.eq(&principal.tenant_id))
            .and_where(self.has_state(escalation::Column::State));
        let before = self.before.map(|before| before.to_string());
        let of_role = Branch { column: escalation::Column::Role, value: Expr::value(role) };
        in_order(&mut select, of_role, escalation::Column::ToolCallId, before);
        select
    }
}

impl CallScope {
    pub(crate) fn condition(self) -> Condition {
        match self {
            Self::Anywhere => Condition::all(),
            Self::Thread(id) => Condition::all().add(tool_call::Column::ThreadId.eq(id.to_string())),
            Self::Session(id) => Condition::all().add(thread::Column::SessionId.eq(id.to_string())),
        }
    }
}

/// Returns the calls that this principal may see.
pub(crate) fn visible_calls(principal: &Principal, visibility: &Visibility) -> Select<tool_call::Entity> {
    tool_call::Entity::find()
        .join(JoinType::InnerJoin, tool_call::Relation::Thread.def())
        .filter(visible_to(principal, visibility))
}

impl Read {
    /// Returns a call of the principal's tenant that the principal may see.
    pub async fn visible_call(
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
    pub(crate) async fn narrowed(
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
    pub async fn visible_holds(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        listing: &Listing<'_>,
    ) -> Result<Page<VisibleCall>, StoreError> {
        let narrowed = match listing.text {
            // A search compares many calls with each part of the visibility.
            Some(_) => Some(self.narrowed(principal, visibility).await?),
            None => None,
        };
        let branches = listing.branches(principal, narrowed.as_ref().unwrap_or(visibility));
        let found = self.newest(&branches, listing.page.items.saturating_add(1)).await?;
        let fitting = listing.page.fitting(found.iter().map(|(_, bytes)| *bytes).collect());
        let Page { items, has_more } = Page::of(found, fitting);
        let ids: Vec<String> = items.into_iter().map(|(id, _)| id).collect();
        if ids.is_empty() {
            return Ok(Page { items: Vec::new(), has_more });
        }
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::ToolCallId.is_in(&ids))
            .order_by_desc(tool_call::Column::ToolCallId);
        // A call may have been decided since.
        let is_listed = |row: &tool_call::Model| row.state == listing.state.word();
        let items = found.all(&self.tx).await?.into_iter().filter(is_listed).collect();
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
    pub async fn pending_holds_of_session(
        &self,
        session: ThreadId,
    ) -> Result<Vec<(ToolCall, Thread)>, StoreError> {
        let found = tool_call::Entity::find()
            .join(JoinType::InnerJoin, tool_call::Relation::Thread.def())
            .filter(thread::Column::SessionId.eq(session.to_string()))
            .filter(held())
            .filter(is_pending())
            .order_by_asc(tool_call::Column::ToolCallId);
        self.with_threads(found.all(&self.tx).await?).await
    }

    /// Whether this scope exists for the principal. Own threads exist, and for an operator all threads of the
    /// tenant. Another user's scope exists if it has a held call that the principal may see.
    pub async fn is_visible(
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
    pub(crate) async fn with_threads(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::config::Database;
    use holdpoint_core::clock::SystemClock;
    use holdpoint_metrics::Metrics;
    use sea_orm::{ConnectionTrait, DbBackend, Statement};
    use std::sync::Arc;
    use uuid::Uuid;

    #[tokio::test]
    async fn on_sqlite_each_branch_of_a_list_comes_from_an_index_in_the_order_of_the_calls() {
        let database = Database::in_memory();
        let store = Store::connect(&database, Arc::new(SystemClock), Metrics::new([], 0.0));
        let store = store.await.unwrap();
        store.migrate().await.unwrap();
        let principal = Principal {
            tenant_id: "acme".to_owned(),
            user_id: "alice".to_owned(),
            roles: vec!["boss".to_owned()],
        };
        let approver = Visibility::Approver {
            tools: vec!["pay".to_owned(), "refund".to_owned()],
            delegated_at: Some(Timestamp::from_micros(1)),
            escalated: true,
        };
        let thread = CallScope::Thread(ThreadId::new(Uuid::nil()));
        let (anywhere, own) = (CallScope::Anywhere, "tool_calls_user");
        let (of_tool, delegated, escalated) = ("tool_calls_tool", "delegations_delegate", "escalations_role");
        for (visibility, scope, tool, indexes) in [
            (&Visibility::Operator, anywhere, None, &["tool_calls_inbox"][..]),
            (&Visibility::Operator, anywhere, Some("pay"), &[of_tool]),
            (&approver, anywhere, None, &[own, of_tool, of_tool, delegated, escalated]),
            (&approver, anywhere, Some("pay"), &[own, of_tool, delegated, escalated]),
            (&approver, thread, None, &["tool_calls_thread"]),
        ] {
            for before in [None, Some(ToolCallId::new(Uuid::nil()))] {
                let page = PageSize { items: 50, bytes: 1 };
                let listing = Listing { scope, state: StateKind::Pending, tool, text: None, before, page };
                let branches = listing.branches(&principal, visibility);
                assert_eq!(branches.len(), indexes.len());
                for (branch, index) in branches.iter().zip(indexes) {
                    let Statement { sql, values, .. } = DbBackend::Sqlite.build(branch);
                    let sql = format!("EXPLAIN QUERY PLAN {}", sql.replace("\"holdpoint\".", ""));
                    let plan = Statement { sql, values, db_backend: DbBackend::Sqlite };
                    let plan = store.read().await.unwrap().tx.query_all_raw(plan).await.unwrap();
                    let plan: Vec<String> =
                        plan.iter().map(|row| row.try_get("", "detail").unwrap()).collect();
                    let is_it = |step: &String| {
                        step.contains(&format!("USING INDEX {index} "))
                            || step.contains(&format!("USING COVERING INDEX {index} "))
                    };
                    assert!(plan.iter().any(is_it), "{index}: {plan:#?}");
                    assert!(!plan.iter().any(|step| step.starts_with("SCAN")), "{index}: {plan:#?}");
                    let sorts = plan.iter().any(|step| step == "USE TEMP B-TREE FOR ORDER BY");
                    assert_eq!(sorts, [delegated, "tool_calls_thread"].contains(index), "{index}: {plan:#?}");
                }
            }
        }
    }
}
