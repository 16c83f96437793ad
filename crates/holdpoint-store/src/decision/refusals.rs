//! Refused decisions, as events of their calls.

use crate::entity::event;
use crate::event::new_event::Subject;
use crate::{LockedCall, StoreError, Write};
use holdpoint_core::decision::{Surface, Verdict};
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::{EventData, RefusedDecision};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};

/// Maximum number of refused decisions of one actor that a call records.
const REFUSALS_MAX: u64 = 20;

/// A decision that was refused.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// The person.
    pub actor: &'a str,
    /// The verdict that the person wanted.
    pub verdict: Verdict,
    /// Where the decision came in.
    pub surface: Surface,
    /// Why it was refused, in a word.
    pub code: &'static str,
}

impl Write {
    /// Adds the event of a refused decision about a locked call. Returns false if the call has as many of this actor
    /// as it records: the lock makes the count exact.
    pub async fn record_refusal(
        &self,
        LockedCall { call, thread, .. }: &LockedCall,
        refusal: Refusal<'_>,
    ) -> Result<bool, StoreError> {
        let Refusal { actor, verdict, surface, code } = refusal;
        let recorded = event::Entity::find()
            // By the run: the index of the calls leaves out events without a number.
            .filter(event::Column::RunId.eq(call.run_id.to_string()))
            .filter(event::Column::ToolCallId.eq(call.id.to_string()))
            .filter(event::Column::EventType.eq(EventType::ToolDecisionRefused.word()))
            .filter(event::Column::Actor.eq(actor))
            .count(&self.tx)
            .await?;
        if recorded >= REFUSALS_MAX {
            return Ok(false);
        }
        let refused = RefusedDecision { decision: verdict, code: code.to_owned(), surface };
        let data = EventData::DecisionRefused { tool_name: call.name.clone(), refused };
        self.event(EventType::ToolDecisionRefused, actor, &Subject::call(thread, call), data);
        Ok(true)
    }
}
