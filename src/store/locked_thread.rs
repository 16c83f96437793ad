//! Threads that a transaction has locked.
//!
//! A transaction locks a thread before it changes the thread's messages, runs or calls, and the root thread before it
//! changes the policy or the grants of the session: first the thread, then the root. The changes take the locked
//! thread, so none of them can forget the lock or read again what the lock has read.

use super::entity::thread;
use super::threads::owned_by;
use super::{StoreError, Thread, Write, rows};
use crate::domain::Principal;
use crate::domain::id::ThreadId;
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select};
use std::ops::Deref;

/// The size of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The number of messages, superseded ones included.
    pub(crate) messages: u64,
    /// The bytes of texts, arguments and results.
    pub(crate) bytes: u64,
}

/// A thread that is locked until the transaction ends, as it was before the transaction. Only the store makes one.
#[derive(Debug, Clone)]
pub(crate) struct LockedThread {
    thread: Thread,
    /// The size of the thread.
    pub(crate) extent: Extent,
    /// Whether the thread is deleted.
    pub(crate) is_deleted: bool,
    /// The policy of the session, if the thread is its root and has one.
    pub(super) policy: Option<String>,
}

impl Deref for LockedThread {
    type Target = Thread;

    fn deref(&self) -> &Thread {
        &self.thread
    }
}

impl LockedThread {
    /// Returns a thread that this transaction has created. No other transaction sees it before the commit.
    pub(super) fn created(thread: Thread) -> Self {
        Self { thread, extent: Extent::default(), is_deleted: false, policy: None }
    }

    /// Returns the thread of a locked row.
    pub(super) fn of(row: thread::Model) -> Result<Self, StoreError> {
        let count = |stored: i64| u64::try_from(stored).unwrap_or_default();
        let extent = Extent { messages: count(row.messages), bytes: count(row.bytes) };
        let (is_deleted, policy) = (row.deleted_at.is_some(), row.policy.clone());
        Ok(Self { thread: Thread::of(row)?, extent, is_deleted, policy })
    }

    /// Returns the thread without the lock, for the time after the transaction.
    pub(crate) fn into_thread(self) -> Thread {
        self.thread
    }
}

impl Write {
    /// Locks a thread, whatever its owner, until the transaction ends.
    pub(crate) async fn lock_thread(&self, id: ThreadId) -> Result<LockedThread, StoreError> {
        let found = self.lock_one_thread(thread::Entity::find_by_id(id.to_string())).await?;
        found.ok_or_else(|| rows::inconsistent("threads", format_args!("{id} is missing")))
    }

    /// Finds a thread by its id, or else by the caller's own name for it, and locks the thread.
    pub(crate) async fn lock_thread_named(
        &self,
        owner: &Principal,
        name: &str,
    ) -> Result<Option<LockedThread>, StoreError> {
        let id: Option<ThreadId> = name.parse().ok();
        let named = (!name.contains('\0')).then(|| thread::Column::ClientId.eq(name));
        let with_id = id.map(|id| thread::Column::ThreadId.eq(id.to_string()));
        if with_id.is_none() && named.is_none() {
            return Ok(None);
        }
        let mut query = thread::Entity::find()
            .filter(owned_by(owner))
            .filter(Condition::any().add_option(with_id.clone()).add_option(named));
        if let Some(with_id) = with_id {
            query = query.order_by_desc(with_id).limit(1);
        }
        self.lock_one_thread(query).await
    }

    /// Locks the root of a locked thread's session. A transaction locks both in this order.
    pub(crate) async fn lock_session(&self, of: &LockedThread) -> Result<LockedThread, StoreError> {
        if of.parent_id.is_none() {
            return Ok(of.clone());
        }
        self.lock_thread(of.session_id).await
    }

    async fn lock_one_thread(
        &self,
        which: Select<thread::Entity>,
    ) -> Result<Option<LockedThread>, StoreError> {
        which.lock_exclusive().one(&self.tx).await?.map(LockedThread::of).transpose()
    }
}
