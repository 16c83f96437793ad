//! Sessions: the policy and the runs of a root thread and of all threads below it.

use crate::entity::{run, thread, tool_call};
use crate::sql::newest::Branch;
use crate::thread::threads::{Page, count_of_pending, newest, of_tenant, threads_where};
use crate::{LockedThread, Read, StoreError, Thread, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::StateKind;
use holdpoint_core::id::{RunId, ThreadId};
use holdpoint_core::policy::{ApprovalMode, SessionPolicy, ToolPolicy};
use holdpoint_core::run::RunStatus;
use sea_orm::sea_query::{Expr, ExprTrait, Func, Query, SimpleExpr};
use sea_orm::{ColumnTrait, Condition, EntityName, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};

/// A session's policy as `threads.policy` has it, in JSON. Rows of earlier versions have this form, so a
/// change must still read them.
#[derive(Serialize, Deserialize)]
struct StoredPolicy {
    mode: Option<ApprovalMode>,
    tools: BTreeMap<String, ToolPolicy>,
}

fn write_policy(policy: &SessionPolicy) -> String {
    let SessionPolicy { mode, tools } = policy.clone();
    json!(StoredPolicy { mode, tools }).to_string()
}

pub(crate) fn read_policy(text: &str) -> Result<SessionPolicy, StoreError> {
    let StoredPolicy { mode, tools } = rows::json("threads", text)?;
    Ok(SessionPolicy { mode, tools })
}

#[derive(Debug)]
pub struct ListedSession {
    pub root: Thread,
    /// The number of pending calls in all threads of the session.
    pub pending_count: u64,
    /// Whether the session has a policy of its own.
    pub has_policy: bool,
}

/// Whose sessions a list has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionScope {
    Own,
    /// The sessions of every user of the principal's tenant.
    OfTenant,
}

impl Read {
    /// Returns sessions, newest first, older than `before`.
    pub async fn sessions(
        &self,
        principal: &Principal,
        scope: SessionScope,
        before: Option<ThreadId>,
        size: u64,
    ) -> Result<Page<ListedSession>, StoreError> {
        let roots = of_tenant(principal).add(thread::Column::ParentId.is_null());
        let (column, value) = match scope {
            SessionScope::Own => (thread::Column::UserId, &principal.user_id),
            SessionScope::OfTenant => (thread::Column::TenantId, &principal.tenant_id),
        };
        let branch = Branch { column, value: Expr::value(value) };
        let before = before.map(|before| before.to_string());
        let found = newest(roots, branch, before, size.saturating_add(1)).all(&self.tx).await?;
        let Page { items, has_more } = Page::of(found, size);
        let pending = self.pending_of_sessions(items.iter().map(|root| root.thread_id.as_str())).await?;
        let read = |row: thread::Model| {
            let id = row.thread_id.clone();
            let pending_count = pending.get(&id).copied().unwrap_or_default();
            let has_policy = row.policy.is_some();
            let session = Thread::of(row).map(|root| ListedSession { root, pending_count, has_policy });
            rows::listed("threads", &id, session)
        };
        Ok(Page { items: items.into_iter().filter_map(read).collect(), has_more })
    }

    /// Returns the number of pending calls of each of these sessions.
    async fn pending_of_sessions(
        &self,
        sessions: impl ExactSizeIterator<Item = &str>,
    ) -> Result<HashMap<String, u64>, StoreError> {
        if sessions.len() == 0 {
            return Ok(HashMap::new());
        }
        // A subquery for each session and for each of its threads: a join may begin at all pending calls of all tenants.
        const THREAD: &str = "of_session";
        let of_thread = count_of_pending((THREAD, thread::Column::ThreadId));
        let root = (thread::Entity, thread::Column::ThreadId);
        let of_session = Query::select()
            .expr(Expr::from(Func::sum(SimpleExpr::from(of_thread))).cast_as("BIGINT"))
            .from_as(thread::Entity.table_ref(), THREAD)
            .and_where(Expr::col((THREAD, thread::Column::SessionId)).equals(root))
            .to_owned();
        let counts: Vec<(String, i64)> = thread::Entity::find()
            .select_only()
            .column(thread::Column::ThreadId)
            .column_as(SimpleExpr::from(of_session), "pending")
            .filter(thread::Column::ThreadId.is_in(sessions))
            .into_tuple()
            .all(&self.tx)
            .await?;
        Ok(counts.into_iter().map(|(id, count)| (id, u64::try_from(count).unwrap_or_default())).collect())
    }

    /// Returns the root thread of a session, of any user in the principal's tenant.
    pub async fn any_session(
        &self,
        principal: &Principal,
        id: ThreadId,
    ) -> Result<Option<Thread>, StoreError> {
        let found = thread::Entity::find_by_id(id.to_string())
            .filter(of_tenant(principal))
            .filter(thread::Column::ParentId.is_null())
            .one(&self.tx)
            .await?;
        found.map(Thread::of).transpose()
    }

    /// Returns the runs of the principal's session that are running, waiting, or failed with pending or
    /// approved calls. The runs of the root thread come first, then the others, each oldest first. Returns
    /// `None` if the principal has no such session.
    pub async fn runs_of_session(
        &self,
        owner: &Principal,
        id: ThreadId,
    ) -> Result<Option<Vec<RunId>>, StoreError> {
        let root = self.thread(owner, id).await?;
        let Some(root) = root.filter(|root| root.parent_id.is_none()) else { return Ok(None) };
        let threads = thread::Column::SessionId.eq(root.id.to_string());
        let found = self.active_runs(threads).await?;
        let (of_root, of_others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|(_, thread)| *thread == root.id);
        Ok(Some(of_root.into_iter().chain(of_others).map(|(run, _)| run).collect()))
    }

    /// Returns the runs of the principal's thread that are running, waiting, or failed with pending or
    /// approved calls, oldest first. Returns `None` if the principal has no such thread.
    pub async fn runs_of_thread(
        &self,
        owner: &Principal,
        id: ThreadId,
    ) -> Result<Option<Vec<RunId>>, StoreError> {
        let Some(found) = self.thread(owner, id).await? else { return Ok(None) };
        let runs = self.active_runs(thread::Column::ThreadId.eq(found.id.to_string())).await?;
        Ok(Some(runs.into_iter().map(|(run, _)| run).collect()))
    }

    /// Returns the runs of these threads that are running, waiting, or failed with pending or approved calls,
    /// oldest first, each with its thread.
    async fn active_runs(&self, threads: SimpleExpr) -> Result<Vec<(RunId, ThreadId)>, StoreError> {
        let threads = Condition::all().add(threads).add(thread::Column::DeletedAt.is_null());
        let open = Query::select()
            .column(tool_call::Column::RunId)
            .from(tool_call::Entity.table_ref())
            .and_where(
                tool_call::Column::State.is_in([StateKind::Pending.word(), StateKind::Approved.word()]),
            )
            .and_where(tool_call::Column::ThreadId.in_subquery(threads_where(threads.clone())))
            .to_owned();
        let is_active = run::Column::Status.is_in([RunStatus::Running.word(), RunStatus::Waiting.word()]);
        let broke =
            run::Column::Status.eq(RunStatus::Failed.word()).and(run::Column::RunId.in_subquery(open));
        let found: Vec<(String, String)> = run::Entity::find()
            .select_only()
            .columns([run::Column::RunId, run::Column::ThreadId])
            .filter(run::Column::ThreadId.in_subquery(threads_where(threads)))
            .filter(is_active.or(broke))
            .order_by_asc(run::Column::RunId)
            .into_tuple()
            .all(&self.tx)
            .await?;
        found.iter().map(|(run, thread)| Ok((rows::id("runs", run)?, rows::id("runs", thread)?))).collect()
    }

    /// Returns the policy of a thread's session.
    pub async fn session_policy(&self, thread: &Thread) -> Result<SessionPolicy, StoreError> {
        let root = thread::Entity::find_by_id(thread.session_id.to_string()).one(&self.tx).await?;
        let policy = root.and_then(|root| root.policy);
        Ok(policy.map(|policy| read_policy(&policy)).transpose()?.unwrap_or_default())
    }
}

impl Write {
    /// Locks the policy and the grants of a thread's session against changes until the transaction ends, and
    /// returns the policy as it was before the transaction. A transaction that locks both uses this order.
    pub async fn hold_session(&self, of: &LockedThread) -> Result<SessionPolicy, StoreError> {
        let policy = if of.parent_id.is_none() {
            of.policy.clone()
        } else {
            let root = thread::Entity::find_by_id(of.session_id.to_string());
            root.lock_shared().one(&self.tx).await?.and_then(|root| root.policy)
        };
        Ok(policy.map(|policy| read_policy(&policy)).transpose()?.unwrap_or_default())
    }

    pub async fn set_session_policy(
        &self,
        root: &LockedThread,
        policy: &SessionPolicy,
    ) -> Result<(), StoreError> {
        thread::Entity::update_many()
            .col_expr(thread::Column::Policy, Expr::value(write_policy(policy)))
            .filter(thread::Column::ThreadId.eq(root.id.to_string()))
            .exec(&self.tx)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdpoint_core::policy::{ApprovalMode, ToolPolicy};

    #[test]
    fn a_policy_has_the_form_of_the_rows_of_earlier_versions() {
        let tools = [("a", ToolPolicy::Allow), ("b", ToolPolicy::Ask), ("c", ToolPolicy::Deny)];
        let tools: BTreeMap<_, _> = tools.map(|(name, policy)| (name.to_owned(), policy)).into();
        for (mode, tools, stored) in [
            (None, BTreeMap::new(), r#"{"mode":null,"tools":{}}"#),
            (Some(ApprovalMode::Manual), BTreeMap::new(), r#"{"mode":"manual","tools":{}}"#),
            (Some(ApprovalMode::AutoApprove), BTreeMap::new(), r#"{"mode":"auto-approve","tools":{}}"#),
            (
                Some(ApprovalMode::AutoDeny),
                tools,
                r#"{"mode":"auto-deny","tools":{"a":"allow","b":"ask","c":"deny"}}"#,
            ),
        ] {
            let policy = SessionPolicy { mode, tools };
            assert_eq!(write_policy(&policy), stored);
            assert_eq!(read_policy(stored).unwrap(), policy);
        }
        assert!(read_policy(r#"{"mode":"sometimes","tools":{}}"#).is_err());
    }
}
