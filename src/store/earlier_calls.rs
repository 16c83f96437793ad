//! The calls of a thread that decide about new calls.

use super::entity::tool_call;
use super::words::Word;
use super::{Lease, StoreError, Write, rows};
use crate::domain::call::{StateKind, ToolCall};
use crate::domain::id::RunId;
use crate::domain::text::without_nul;
use sea_orm::sea_query::{ExprTrait, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::collections::HashSet;

/// The calls of a thread that decide about new calls.
#[derive(Debug, Default)]
pub(crate) struct EarlierCalls {
    /// The pending calls, also those whose deadline is reached.
    pub(crate) pending: Vec<ToolCall>,
    /// The held calls of the run that persons rejected, in the order of their decisions.
    pub(crate) rejected: Vec<ToolCall>,
    /// The ids on the wire that are taken, of those that the model gave.
    pub(super) used: HashSet<String>,
}

/// The held calls of this run that were rejected.
fn rejected_in(run: RunId) -> SimpleExpr {
    tool_call::Column::State
        .eq(StateKind::Rejected)
        .and(tool_call::Column::RunId.eq(run.to_string()))
        .and(tool_call::Column::Held.eq(true))
}

/// The beginning of the actors that are persons.
const PERSON: &str = "user:";

fn is_rejected_by_person(row: &tool_call::Model) -> bool {
    let by_person = row.decided_by.as_ref().is_some_and(|by| by.starts_with(PERSON));
    row.held && row.state == StateKind::Rejected.word() && by_person
}

impl Write {
    /// Returns the calls of the thread of a turn that decide about new calls with these ids on the wire. This transaction
    /// holds the turn, and so has locked the thread, so no transaction decides these calls until this transaction ends.
    pub(crate) async fn earlier_calls(
        &self,
        lease: &Lease,
        provider_ids: &[&str],
    ) -> Result<EarlierCalls, StoreError> {
        let provider_ids = provider_ids.iter().map(|id| without_nul(id));
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::ThreadId.eq(lease.thread.id.to_string()))
            .filter(
                tool_call::Column::State
                    .eq(StateKind::Pending)
                    .or(tool_call::Column::WireCallId.is_in(provider_ids))
                    .or(rejected_in(lease.run.id)),
            )
            .all(&self.tx)
            .await?;
        let mut earlier = EarlierCalls::default();
        let (run, mut rejected) = (lease.run.id.to_string(), Vec::new());
        for row in found {
            earlier.used.insert(row.wire_call_id.clone());
            if row.state == StateKind::Pending.word() {
                // A pending call has no decision in force.
                earlier.pending.push(rows::call(row, None)?);
            } else if row.run_id == run && is_rejected_by_person(&row) {
                rejected.push(row);
            }
        }
        rejected.sort_by_key(|row| row.decided_at);
        earlier.rejected = self.listed_with_decisions(rejected).await?;
        Ok(earlier)
    }

    /// Returns the held calls of a run that expired.
    pub(crate) async fn expired_calls(&self, run: RunId) -> Result<Vec<ToolCall>, StoreError> {
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::RunId.eq(run.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Expired))
            .all(&self.tx)
            .await?;
        self.listed_with_decisions(found).await
    }
}
