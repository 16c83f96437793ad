//! Threads that a transaction has locked.
//!
//! A transaction locks a thread before it changes the thread's messages, runs or calls, and the root thread before it
//! changes the policy or the grants of the session: first the thread, then the root. The changes take the locked
//! thread, so none of them can forget the lock or read again what the lock has read.
//!
//! # Locks
//!
//! The lock order of a transaction is: child's thread, parent's thread, root thread of the session, and of the grants
//! whose uses it counts one after the other by id (`Write::lock_counted`). A lock returns a [`LockedThread`] with what
//! its statement has read: the thread, its size, whether it is deleted, and the policy of the session.
//! `Write::lock_turn` locks the thread and the run of a turn with one statement. A decision, a claim and an outcome
//! lock the thread, then the run, then the call, also with one statement (`locked_call`). Postgres reads a row again
//! after it waited for the lock of that row, but no other row of the statement.
//!
//! `Write::hold_session` locks the root in shared mode, for a transaction that reads the session's policy and grants.
//! So when a call is stored, approved or claimed, both stay as they are from the evaluation of the policy to the
//! commit. A change of these, and `Write::delegate`, lock the root exclusively. `Write::delegate` locks the parent
//! before it creates the child, which no other transaction knows yet.
//!
//! `Write::running_turns` takes an advisory lock per user, after the thread. `Store::record_listing` takes one per MCP
//! server, and no thread. A numbering pass holds the row of `event_sequence` and no thread. `Write::draft_steps` locks
//! no threads, because a draft moves nothing. On SQLite all writers queue in the process and begin with `BEGIN
//! IMMEDIATE`.

use crate::entity::thread;
use crate::sql::with::{not_built, with_parts};
use crate::thread::threads::owned_by;
use crate::{NewThread, StoreError, Thread, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::id::ThreadId;
use sea_orm::sea_query::{Expr, ExprTrait, OnConflict, Query, UnionType, WithQuery};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, Condition, ConnectionTrait, DbBackend, DbErr, EntityName, EntityTrait,
    FromQueryResult, Iterable, QueryFilter, QueryOrder, QuerySelect, QueryTrait, Select,
};
use std::ops::Deref;

/// The parts of the statement that locks or inserts a thread.
const FOUND: &str = "found";
const MADE: &str = "made";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// The number of messages, superseded ones included.
    pub messages: u64,
    /// The bytes of texts, arguments and results.
    pub bytes: u64,
}

/// A thread that is locked until the transaction ends, as the transaction found it. Only the store makes one.
#[derive(Debug, Clone)]
pub struct LockedThread {
    thread: Thread,
    pub extent: Extent,
    pub is_deleted: bool,
    /// The policy of the session, if the thread is its root and has one.
    pub(crate) policy: Option<String>,
}

impl Deref for LockedThread {
    type Target = Thread;

    fn deref(&self) -> &Thread {
        &self.thread
    }
}

impl LockedThread {
    /// Returns a thread that this transaction has created. No other transaction sees it before the commit.
    pub(crate) fn created(thread: Thread) -> Self {
        Self { thread, extent: Extent::default(), is_deleted: false, policy: None }
    }

    /// Reads a locked row. `Write::locked` adds what the transaction has added to its counts.
    pub(crate) fn of(row: thread::Model) -> Result<Self, StoreError> {
        let count = |stored: i64| u64::try_from(stored).unwrap_or_default();
        let extent = Extent { messages: count(row.messages), bytes: count(row.bytes) };
        let (is_deleted, policy) = (row.deleted_at.is_some(), row.policy.clone());
        Ok(Self { thread: Thread::of(row)?, extent, is_deleted, policy })
    }

    /// Returns the thread without the lock, for the time after the transaction.
    pub fn into_thread(self) -> Thread {
        self.thread
    }
}

impl Write {
    /// Locks a thread, whatever its owner, until the transaction ends.
    pub async fn lock_thread(&self, id: ThreadId) -> Result<LockedThread, StoreError> {
        let found = self.lock_one_thread(thread::Entity::find_by_id(id.to_string())).await?;
        found.ok_or_else(|| rows::inconsistent("threads", format_args!("{id} is missing")))
    }

    /// Finds a thread by its id, or else by the caller's own name for it, and locks the thread.
    pub async fn lock_thread_named(
        &self,
        owner: &Principal,
        name: &str,
    ) -> Result<Option<LockedThread>, StoreError> {
        match named(owner, name) {
            None => Ok(None),
            Some(query) => self.lock_one_thread(query).await,
        }
    }

    /// Locks the thread that [`Self::lock_thread_named`] finds, or creates a thread with this name. On Postgres one
    /// statement does both.
    pub async fn lock_or_create_thread(
        &self,
        owner: &Principal,
        name: &str,
        title: &str,
    ) -> Result<LockedThread, StoreError> {
        let new = NewThread { title: title.to_owned(), client_id: Some(name.to_owned()), parent: None };
        match named(owner, name) {
            Some(query) if self.tx.get_database_backend() == DbBackend::Postgres => {
                let row = self.new_thread(owner, new).row();
                let statement = DbBackend::Postgres.build(&lock_or_insert(query, row)?);
                match thread::Model::find_by_statement(statement).one(&self.tx).await? {
                    Some(row) => self.locked(row),
                    // Another transaction gave the name to its thread after the snapshot of this statement.
                    None => self
                        .lock_thread_named(owner, name)
                        .await?
                        .ok_or_else(|| rows::inconsistent("threads", "a name is taken and has no thread")),
                }
            }
            _ => match self.lock_thread_named(owner, name).await? {
                Some(found) => Ok(found),
                None => self.create_thread(owner, new).await,
            },
        }
    }

    /// Locks the root of a locked thread's session. A transaction locks both in this order.
    pub async fn lock_session(&self, of: &LockedThread) -> Result<LockedThread, StoreError> {
        if of.parent_id.is_none() {
            return Ok(of.clone());
        }
        self.lock_thread(of.session_id).await
    }

    async fn lock_one_thread(
        &self,
        which: Select<thread::Entity>,
    ) -> Result<Option<LockedThread>, StoreError> {
        which.lock_exclusive().one(&self.tx).await?.map(|row| self.locked(row)).transpose()
    }
}

/// Selects the thread with this id, or else with this name. Returns `None` if no thread can have either.
pub(crate) fn named(owner: &Principal, name: &str) -> Option<Select<thread::Entity>> {
    let id: Option<ThreadId> = name.parse().ok();
    let named = (!name.contains('\0')).then(|| thread::Column::ClientId.eq(name));
    let with_id = id.map(|id| thread::Column::ThreadId.eq(id.to_string()));
    if with_id.is_none() && named.is_none() {
        return None;
    }
    let query = thread::Entity::find()
        .filter(owned_by(owner))
        .filter(Condition::any().add_option(with_id.clone()).add_option(named));
    Some(match with_id {
        Some(with_id) => query.order_by_desc(with_id).limit(1),
        None => query,
    })
}

/// Returns the statement that locks the selected thread, or inserts the row if it finds none. The statement returns no
/// row if it finds none and another transaction has taken the name of the row.
fn lock_or_insert(found: Select<thread::Entity>, mut row: thread::ActiveModel) -> Result<WithQuery, DbErr> {
    let value = |column| Some((column, Expr::value(row.take(column).into_value()?)));
    let (columns, values): (Vec<_>, Vec<_>) = thread::Column::iter().filter_map(value).unzip();
    let is_found = Expr::exists(Query::select().expr(Expr::cust("1")).from(FOUND).take());
    let mut insert = Query::insert();
    insert
        .into_table(thread::Entity.table_ref())
        .columns(columns)
        .select_from(Query::select().exprs(values).and_where(is_found.not()).take())
        .map_err(not_built)?
        .on_conflict(OnConflict::new().do_nothing().to_owned())
        .returning(Query::returning().columns(thread::Column::iter()));
    let rows_of = |part| Query::select().columns(thread::Column::iter()).from(part).take();
    let found = found.lock_exclusive().into_query();
    let rows = rows_of(FOUND).union(UnionType::All, rows_of(MADE)).take();
    Ok(with_parts([(FOUND, found.into()), (MADE, insert.into())], rows))
}
