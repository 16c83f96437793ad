//! Threads, always those of one principal.

use crate::call::permit::{Conversation, Requester};
use crate::entity::{message, run, step, thread, tool_call};
use crate::sql::newest::{Branch, in_order};
use crate::{CallsToCancel, LockedThread, Read, StoreError, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::StateKind;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::id::{RunId, ThreadId, ToolCallId};
use holdpoint_core::message::Usage;
use holdpoint_core::run::RunStatus;
use sea_orm::sea_query::{Expr, ExprTrait, IntoColumnRef, Query, SelectStatement, SimpleExpr};
use sea_orm::{
    ActiveValue::Set, ColumnTrait, Condition, EntityName, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait, Select,
};
use std::collections::HashMap;

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    pub id: ThreadId,
    /// The root thread of the session.
    pub session_id: ThreadId,
    pub parent_id: Option<ThreadId>,
    pub tenant_id: String,
    /// The user of the thread, in the tenant.
    pub user_id: String,
    /// The caller's own name for the thread.
    pub client_id: Option<String>,
    pub title: String,
    pub created_at: Timestamp,
    /// When the thread last got a message or a title.
    pub updated_at: Timestamp,
}

impl Thread {
    /// Returns the user of the thread, as the actor of an event.
    pub fn actor(&self) -> String {
        format!("user:{}", self.user_id)
    }

    /// Returns the user of the thread, on whose behalf its calls run.
    pub fn requester(&self) -> Requester {
        Requester { tenant_id: self.tenant_id.clone(), user_id: self.user_id.clone() }
    }

    /// Returns the thread as the place of a call of this run.
    pub(crate) fn conversation(&self, run_id: RunId) -> Conversation {
        let (thread_id, session_id) = (self.id, self.session_id);
        Conversation { requester: self.requester(), thread_id, session_id, run_id }
    }

    /// Whether the thread belongs to this principal.
    pub fn is_of(&self, principal: &Principal) -> bool {
        self.tenant_id == principal.tenant_id && self.user_id == principal.user_id
    }

    /// Returns the row of a thread that does not exist yet.
    pub(crate) fn row(&self) -> thread::ActiveModel {
        thread::ActiveModel {
            thread_id: Set(self.id.to_string()),
            tenant_id: Set(self.tenant_id.clone()),
            user_id: Set(self.user_id.clone()),
            session_id: Set(self.session_id.to_string()),
            parent_id: Set(self.parent_id.map(|parent| parent.to_string())),
            client_id: Set(self.client_id.clone()),
            title: Set(self.title.clone()),
            created_at: Set(self.created_at.as_micros()),
            updated_at: Set(self.updated_at.as_micros()),
            ..Default::default()
        }
    }
}

/// What is in progress in a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadActivity {
    /// The running run, or else the newest waiting run.
    pub active_run: Option<RunId>,
    /// The number of pending calls.
    pub pending_count: u64,
}

/// A thread to create.
#[derive(Debug, Clone)]
pub struct NewThread {
    pub title: String,
    /// The caller's own name for the thread.
    pub client_id: Option<String>,
    pub parent: Option<Thread>,
}

#[derive(Debug)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Whether older items exist.
    pub has_more: bool,
}

impl<T> Page<T> {
    /// Returns a page of up to `size` items from a list that may have one more.
    pub(crate) fn of(mut items: Vec<T>, size: u64) -> Self {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let has_more = items.len() > size;
        items.truncate(size);
        Self { items, has_more }
    }
}

/// Selects the threads of one principal.
pub(crate) fn owned_by(owner: &Principal) -> Condition {
    of_tenant(owner).add(thread::Column::UserId.eq(&owner.user_id))
}

/// Selects the threads of all users of the principal's tenant. A query on behalf of a user needs further
/// conditions.
pub(crate) fn of_tenant(principal: &Principal) -> Condition {
    Condition::all()
        .add(thread::Column::TenantId.eq(&principal.tenant_id))
        .add(thread::Column::DeletedAt.is_null())
}

/// Selects all threads, by the indexes of lists, `threads_owner` and `threads_root`, if deleted threads are left out too.
/// Literal, not a bind parameter, so that the partial indexes are usable.
fn listed() -> SimpleExpr {
    thread::Column::CreatedAt.into_expr().gt(Expr::cust("0"))
}

/// Selects the ids of the principal's threads, for the predicates of other tables.
pub(crate) fn threads_of(owner: &Principal) -> SelectStatement {
    threads_where(owned_by(owner))
}

/// Selects the ids of the threads that match the condition.
pub(crate) fn threads_where(condition: Condition) -> SelectStatement {
    Query::select()
        .column(thread::Column::ThreadId)
        .from(thread::Entity.table_ref())
        .cond_where(condition)
        .to_owned()
}

/// Selects the newest threads of a branch, by the index of lists that has its column.
pub(crate) fn newest(
    which: Condition,
    branch: Branch<thread::Column>,
    before: Option<String>,
    most: u64,
) -> Select<thread::Entity> {
    let mut select = thread::Entity::find().filter(which.add(listed())).limit(most);
    in_order(QueryTrait::query(&mut select), branch, thread::Column::ThreadId, before);
    select
}

/// Selects the number of pending calls of a thread, as a subquery: a join of several threads may begin at all calls. It
/// counts rows and reads no column, so that the index has all that it needs.
pub(crate) fn count_of_pending(thread: impl IntoColumnRef) -> SelectStatement {
    Query::select()
        .expr(Expr::cust("COUNT(*)"))
        .from(tool_call::Entity.table_ref())
        .and_where(tool_call::Column::ThreadId.into_expr().equals(thread))
        .and_where(tool_call::Column::State.eq(StateKind::Pending.word()))
        .to_owned()
}

impl Read {
    pub async fn thread(&self, owner: &Principal, id: ThreadId) -> Result<Option<Thread>, StoreError> {
        self.one_thread(owner, thread::Column::ThreadId.eq(id.to_string())).await
    }

    /// Returns a thread by its id, or else by the caller's own name for it.
    pub async fn thread_named(&self, owner: &Principal, name: &str) -> Result<Option<Thread>, StoreError> {
        if let Ok(id) = name.parse()
            && let Some(found) = self.thread(owner, id).await?
        {
            return Ok(Some(found));
        }
        if name.contains('\0') {
            return Ok(None);
        }
        self.one_thread(owner, thread::Column::ClientId.eq(name)).await
    }

    async fn one_thread(&self, owner: &Principal, which: SimpleExpr) -> Result<Option<Thread>, StoreError> {
        let found = thread::Entity::find().filter(owned_by(owner)).filter(which).one(&self.tx).await?;
        found.map(Thread::of).transpose()
    }

    /// Returns the principal's threads, newest first, older than `before`; with a name, only the thread that
    /// has the name.
    pub async fn threads(
        &self,
        owner: &Principal,
        client_id: Option<&str>,
        before: Option<ThreadId>,
        size: u64,
    ) -> Result<Page<Thread>, StoreError> {
        let before = before.map(|before| before.to_string());
        let most = size.saturating_add(1);
        let found = match client_id {
            // One row, which the index of names has.
            Some(name) => {
                let before = before.map(|before| thread::Column::ThreadId.lt(before));
                thread::Entity::find()
                    .filter(owned_by(owner).add(thread::Column::ClientId.eq(name)).add_option(before))
                    .order_by_desc(thread::Column::ThreadId)
                    .limit(most)
            }
            None => {
                let own = Branch { column: thread::Column::UserId, value: Expr::value(&owner.user_id) };
                newest(of_tenant(owner), own, before, most)
            }
        };
        let found = found.all(&self.tx).await?;
        let Page { items, has_more } = Page::of(found, size);
        let read = |row: thread::Model| rows::listed("threads", &row.thread_id.clone(), Thread::of(row));
        Ok(Page { items: items.into_iter().filter_map(read).collect(), has_more })
    }

    /// Returns the tokens of the newest model call of a thread whose server counted them: what it read and wrote.
    pub async fn newest_usage(&self, thread: ThreadId) -> Result<Option<Usage>, StoreError> {
        let found: Option<(i64, Option<i64>)> = step::Entity::find()
            .select_only()
            .columns([step::Column::InputTokens, step::Column::OutputTokens])
            .inner_join(message::Entity)
            .filter(message::Column::ThreadId.eq(thread.to_string()))
            .filter(step::Column::InputTokens.is_not_null())
            .order_by_desc(message::Column::Ordinal)
            .order_by_desc(step::Column::N)
            .limit(1)
            .into_tuple()
            .one(&self.tx)
            .await?;
        let tokens = |count: i64| u64::try_from(count).unwrap_or_default();
        Ok(found.map(|(input, output)| Usage {
            input_tokens: tokens(input),
            output_tokens: tokens(output.unwrap_or_default()),
        }))
    }

    /// Returns the activity of these threads, in the same number of statements for any number of threads.
    pub async fn activity(
        &self,
        threads: &[Thread],
    ) -> Result<HashMap<ThreadId, ThreadActivity>, StoreError> {
        let mut found: HashMap<ThreadId, ThreadActivity> = HashMap::new();
        if threads.is_empty() {
            return Ok(found);
        }
        let ids = || threads.iter().map(|thread| thread.id.to_string());
        let count = count_of_pending((thread::Entity, thread::Column::ThreadId));
        let pending: Vec<(String, i64)> = thread::Entity::find()
            .select_only()
            .column(thread::Column::ThreadId)
            .column_as(SimpleExpr::from(count), "pending")
            .filter(thread::Column::ThreadId.is_in(ids()))
            .into_tuple()
            .all(&self.tx)
            .await?;
        for (thread, count) in pending {
            let activity = found.entry(rows::id("threads", &thread)?).or_default();
            activity.pending_count = u64::try_from(count).unwrap_or_default();
        }
        let newest: Vec<(String, String, String)> = run::Entity::find()
            .select_only()
            .column(run::Column::ThreadId)
            .column(run::Column::Status)
            .column_as(run::Column::RunId.max(), "newest")
            .filter(run::Column::ThreadId.is_in(ids()))
            .filter(run::Column::Status.is_in([RunStatus::Running.word(), RunStatus::Waiting.word()]))
            .group_by(run::Column::ThreadId)
            .group_by(run::Column::Status)
            .into_tuple()
            .all(&self.tx)
            .await?;
        for (thread, status, run) in newest {
            let activity = found.entry(rows::id("runs", &thread)?).or_default();
            if status == RunStatus::Running.word() || activity.active_run.is_none() {
                activity.active_run = Some(rows::id("runs", &run)?);
            }
        }
        Ok(found)
    }
}

impl Write {
    pub async fn create_thread(&self, owner: &Principal, new: NewThread) -> Result<LockedThread, StoreError> {
        let made = self.new_thread(owner, new);
        thread::Entity::insert(made.row()).exec_without_returning(&self.tx).await?;
        Ok(LockedThread::created(made))
    }

    /// Returns a thread that does not exist yet.
    pub(crate) fn new_thread(&self, owner: &Principal, new: NewThread) -> Thread {
        let id = ThreadId::new(self.clock.uuid());
        Thread {
            id,
            session_id: new.parent.as_ref().map_or(id, |parent| parent.session_id),
            parent_id: new.parent.map(|parent| parent.id),
            tenant_id: owner.tenant_id.clone(),
            user_id: owner.user_id.clone(),
            client_id: new.client_id,
            title: new.title,
            created_at: self.now,
            updated_at: self.now,
        }
    }

    /// Changes the title of a thread.
    pub async fn rename_thread(
        &self,
        owner: &Principal,
        id: ThreadId,
        title: &str,
    ) -> Result<Option<Thread>, StoreError> {
        thread::Entity::update_many()
            .col_expr(thread::Column::Title, Expr::value(title))
            .col_expr(thread::Column::UpdatedAt, Expr::value(self.now.as_micros()))
            .filter(owned_by(owner))
            .filter(thread::Column::ThreadId.eq(id.to_string()))
            .exec(&self.tx)
            .await?;
        self.thread(owner, id).await
    }

    /// Deletes a thread. Its rows stay, its calls are cancelled, and reads on behalf of users no longer find
    /// it. If the thread is the root of a session, the grants of the session are revoked. Returns the
    /// executing calls, which the caller asks to stop after the commit, or `None` if no such thread exists.
    pub async fn delete_thread(
        &self,
        owner: &Principal,
        id: ThreadId,
    ) -> Result<Option<Vec<ToolCallId>>, StoreError> {
        let Some(found) = self.thread(owner, id).await? else { return Ok(None) };
        let found = self.lock_thread(found.id).await?;
        let requested = self.cancel_calls(&found, CallsToCancel::Open, &owner.actor()).await?;
        self.revoke_grants_in(&found, &owner.actor()).await?;
        let deleted = thread::Entity::update_many()
            .col_expr(thread::Column::DeletedAt, Expr::value(self.now.as_micros()))
            .filter(owned_by(owner))
            .filter(thread::Column::ThreadId.eq(id.to_string()))
            .exec(&self.tx)
            .await?;
        Ok((deleted.rows_affected == 1).then_some(requested))
    }
}
