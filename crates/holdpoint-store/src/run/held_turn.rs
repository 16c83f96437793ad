//! The lock of a turn.

use crate::entity::{run, thread};
use crate::{Lease, LockedThread, StoreError, Write};
use holdpoint_core::run::RunStatus;
use sea_orm::sea_query::LockType;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryTrait};
use std::sync::atomic::Ordering;

/// A turn that holds its lease, with its thread and its run locked until the transaction ends.
#[derive(Debug)]
pub struct HeldTurn<'a> {
    lease: &'a Lease,
    pub thread: LockedThread,
    /// Whether a cancel of the run is requested.
    pub is_cancel_requested: bool,
}

impl<'a> HeldTurn<'a> {
    pub const fn lease(&self) -> &'a Lease {
        self.lease
    }
}

impl Write {
    /// Locks the thread and the run of a turn. Returns `None` if the turn lost its lease or its thread was
    /// deleted.
    pub async fn lock_turn<'a>(&self, lease: &'a Lease) -> Result<Option<HeldTurn<'a>>, StoreError> {
        let Lease { thread, run, holder, .. } = lease;
        let mut query = run::Entity::find_by_id(run.id.to_string()).find_both_related(thread::Entity);
        // In this order. Postgres reads a row again after it waited for the lock of the row, but no other row.
        QueryTrait::query(&mut query).lock_with_tables(LockType::Update, ["threads", "runs"]);
        let found = query.filter(run::Column::ThreadId.eq(thread.id.to_string())).one(&self.tx).await?;
        let Some((run, of_thread)) = found else { return Ok(None) };
        let runs = run.status == RunStatus::Running.word() && run.owner.as_ref() == Some(holder);
        let thread = self.locked(of_thread)?;
        let held = HeldTurn { lease, thread, is_cancel_requested: run.cancel_requested_at.is_some() };
        if runs {
            // An earlier transaction that would have ended the turn was not committed.
            lease.may_have_ended.store(false, Ordering::Relaxed);
        }
        Ok((runs && !held.thread.is_deleted).then_some(held))
    }
}
