//! The earlier calls of a thread that decide about new ones: those that wait, those that a person rejected, and the ids
//! that are taken.

use crate::call::calls::of_run;
use crate::entity::tool_call;
use crate::run::held_turn::HeldTurn;
use crate::{StoreError, Write, sql::rows};
use holdpoint_core::call::{StateKind, ToolCall};
use holdpoint_core::id::{RunId, ToolCallId};
use holdpoint_core::text::without_nul;
use holdpoint_core::wire_id;
use sea_orm::sea_query::{ExprTrait, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::collections::HashSet;

/// How many ids of its own a call may get. One is enough, unless another call of the thread has it.
const WIRE_IDS_PER_CALL: usize = 2;

/// The calls of a thread that decide about new calls.
#[derive(Debug, Default)]
pub struct EarlierCalls {
    /// The pending calls, also those whose deadline is reached.
    pub pending: Vec<ToolCall>,
    /// The held calls of the run that persons rejected, in the order of their decisions.
    pub rejected: Vec<ToolCall>,
    /// The ids on the wire that are taken, of those that the new calls may get.
    used: HashSet<String>,
}

/// Returns the ids on the wire that a call may get if the id that the model gave it is taken, or is none.
fn own_wire_ids(id: ToolCallId) -> impl Iterator<Item = String> {
    wire_id::candidates(&id.to_string()).take(WIRE_IDS_PER_CALL).collect::<Vec<_>>().into_iter()
}

impl EarlierCalls {
    /// Returns an id on the wire that no call of the thread has, and takes it. Providers repeat or omit ids.
    pub(crate) fn take_wire_id(&mut self, call: ToolCallId, provider_call_id: &str) -> String {
        let given = Some(rows::wire_key(provider_call_id).into_owned()).filter(|id| !id.is_empty());
        let mut ids = given.into_iter().chain(own_wire_ids(call));
        // The id of a call is unique everywhere, and not every server takes it.
        ids.find(|id| self.used.insert(id.clone())).unwrap_or_else(|| call.to_string())
    }
}

/// The held calls of this run that were rejected.
fn rejected_in(run: RunId) -> SimpleExpr {
    tool_call::Column::State
        .eq(StateKind::Rejected.word())
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
    /// Returns the calls of the thread of a turn that decide about these new calls, each with the id that the model
    /// gave it. The thread is locked, so no transaction decides these calls until this transaction ends.
    pub async fn earlier_calls(
        &self,
        turn: &HeldTurn<'_>,
        new: &[(ToolCallId, &str)],
    ) -> Result<EarlierCalls, StoreError> {
        let provider_ids = new.iter().map(|(_, id)| rows::wire_key(&without_nul(id)).into_owned());
        let wire_ids = provider_ids.chain(new.iter().flat_map(|(id, _)| own_wire_ids(*id)));
        let found = tool_call::Entity::find()
            .filter(tool_call::Column::ThreadId.eq(turn.lease().thread.id.to_string()))
            .filter(
                tool_call::Column::State
                    .eq(StateKind::Pending.word())
                    .or(tool_call::Column::WireCallId.is_in(wire_ids))
                    .or(rejected_in(turn.lease().run.id)),
            )
            .all(&self.tx)
            .await?;
        let mut earlier = EarlierCalls::default();
        let (run, mut rejected) = (turn.lease().run.id.to_string(), Vec::new());
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
    pub async fn expired_calls(&self, run: RunId) -> Result<Vec<ToolCall>, StoreError> {
        let found = tool_call::Entity::find()
            .filter(of_run(run))
            .filter(tool_call::Column::State.eq(StateKind::Expired.word()))
            .all(&self.tx)
            .await?;
        self.listed_with_decisions(found).await
    }
}
