//! The fence. After a database lost commits, the work that it holds as open may have happened in the lost
//! time. The fence therefore keeps all of this work from continuing by itself.

use crate::call::transitions::{Approved, Cancelled, Interrupted, Pending};
use crate::decision::decisions::NewDecision;
use crate::entity::{run, tool_call};
use crate::run::resumable_runs::PAUSED;
use crate::{LockedThread, Read, StoreError, TimedRead, Write, sql::rows};
use holdpoint_core::call::{State, StateKind, ToolCall};
use holdpoint_core::decision::{Surface, Verdict};
use holdpoint_core::event::EventType;
use holdpoint_core::id::ThreadId;
use holdpoint_core::run::RunStatus;
use holdpoint_core::text::model_texts;
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter, QuerySelect};
use std::collections::BTreeSet;
use std::ops::AddAssign;

/// The states of open calls.
const OPEN: [StateKind; 3] = [StateKind::Pending, StateKind::Approved, StateKind::Executing];

/// The numbers of fenced items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FencedThread {
    /// Pending calls.
    pub pending: u64,
    /// Approved calls that were never claimed.
    pub approved: u64,
    /// Claimed calls, whose outcome is unknown.
    pub interrupted: u64,
    /// Turns in progress.
    pub turns: u64,
}

impl AddAssign for FencedThread {
    fn add_assign(&mut self, other: Self) {
        let Self { pending, approved, interrupted, turns } = other;
        self.pending += pending;
        self.approved += approved;
        self.interrupted += interrupted;
        self.turns += turns;
    }
}

impl Read {
    /// Returns the threads with open work, deleted threads included.
    pub async fn open_threads(&self) -> Result<BTreeSet<ThreadId>, StoreError> {
        let calls: Vec<String> = tool_call::Entity::find()
            .select_only()
            .column(tool_call::Column::ThreadId)
            .distinct()
            .filter(tool_call::Column::State.is_in(OPEN.map(StateKind::word)))
            .into_tuple()
            .all(&self.tx)
            .await?;
        let runs: Vec<String> = run::Entity::find()
            .select_only()
            .column(run::Column::ThreadId)
            .filter(run::Column::Status.eq(RunStatus::Running.word()).or(Expr::cust(PAUSED)))
            .into_tuple()
            .all(&self.tx)
            .await?;
        calls.iter().chain(&runs).map(|id| rows::id("threads", id)).collect()
    }
}

impl TimedRead {
    /// Returns the number of turns, executions and polls of tasks with a valid lease.
    pub async fn leases_held(&self) -> Result<u64, StoreError> {
        let now = self.now.as_micros();
        let turns = run::Entity::find()
            .filter(run::Column::Status.eq(RunStatus::Running.word()))
            .filter(run::Column::LeaseUntil.gte(now))
            .count(&self.tx)
            .await?;
        let calls = tool_call::Entity::find()
            .filter(tool_call::Column::State.eq(StateKind::Executing.word()))
            .filter(tool_call::Column::LeaseUntil.gte(now).or(tool_call::Column::PolledUntil.gte(now)))
            .count(&self.tx)
            .await?;
        Ok(turns + calls)
    }
}

impl Write {
    /// Ends all open work of a thread. An execution that still runs elsewhere settles late.
    pub async fn fence_thread(&self, id: ThreadId, actor: &str) -> Result<FencedThread, StoreError> {
        let thread = self.lock_thread(id).await?;
        let open = tool_call::Entity::find()
            .filter(tool_call::Column::ThreadId.eq(id.to_string()))
            .filter(tool_call::Column::State.is_in(OPEN.map(StateKind::word)))
            .all(&self.tx)
            .await?;
        let mut fenced = FencedThread::default();
        // The calls come first: a turn with a requested cancel cancels the remaining calls with a text that
        // is false here.
        for row in open {
            let call = rows::call(row, None)?;
            match &call.state {
                State::Pending => {
                    fenced.pending += u64::from(self.fence_pending(&thread, &call, actor).await?)
                }
                State::Approved(_) => {
                    let cancelled = self.ended::<Approved, Cancelled>(model_texts::FENCED.to_owned());
                    if self.closed(&thread, &call, cancelled, EventType::ToolCancelled, actor).await? {
                        fenced.approved += 1;
                        continue;
                    }
                    let interrupted =
                        self.ended::<Approved, Interrupted>(model_texts::INTERRUPTED.to_owned());
                    let event = EventType::ToolInterrupted;
                    fenced.interrupted +=
                        u64::from(self.closed(&thread, &call, interrupted, event, actor).await?);
                }
                _ => {
                    if let Some(locked) = self.lock_row(call.id).await? {
                        fenced.interrupted +=
                            u64::from(self.interrupt(&locked, Expr::value(true), actor).await?);
                    }
                }
            }
        }
        if let Some(run) = self.running(&thread).await? {
            fenced.turns += u64::from(self.close_turn(&thread, &run, actor).await?);
        }
        run::Entity::update_many()
            .col_expr(run::Column::ServerResumes, Expr::value(false))
            .filter(run::Column::ThreadId.eq(id.to_string()))
            .filter(Expr::cust(PAUSED))
            .exec(&self.tx)
            .await?;
        Ok(fenced)
    }

    /// Revokes all grants of a session, because the restored database has grants that were revoked since.
    /// Returns their number.
    pub async fn fence_session(&self, root: ThreadId, actor: &str) -> Result<u64, StoreError> {
        let root = self.lock_thread(root).await?;
        self.revoke_grants_in(&root, actor).await
    }

    async fn fence_pending(
        &self,
        thread: &LockedThread,
        call: &ToolCall,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let hash = call.proposed_hash(&call.schema_hash);
        let decision = NewDecision {
            reason: Some(model_texts::FENCE.to_owned()),
            ..NewDecision::new(Verdict::Cancel, actor, Surface::Terminal, hash)
        };
        let cancelled = self
            .ended::<Pending, Cancelled>(model_texts::FENCED.to_owned())
            .set(tool_call::Column::Validated, Expr::value(false));
        self.decided(thread, call, cancelled, &decision, EventType::ToolCancelled).await
    }
}
