//! Extensions of the time to decide.

use crate::entity::tool_call;
use crate::event::new_event::Subject;
use crate::{LockedCall, StoreError, Write};
use holdpoint_core::call::StateKind;
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::EventType;
use holdpoint_core::event_data::EventData;
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::time::Duration;

impl Write {
    /// Lets a locked call wait for its decision until a later time. Returns false if the call does not wait any more,
    /// if its time is over, or if it waits as long already.
    pub async fn extend(
        &self,
        LockedCall { call, thread, .. }: &LockedCall,
        until: Timestamp,
        remind_before: Duration,
        actor: &str,
    ) -> Result<bool, StoreError> {
        let Some(from) = call.expires_at else { return Ok(false) };
        let remind_at = self.reminder(until, remind_before);
        let waits = tool_call::Column::State.eq(StateKind::Pending.word());
        let in_time = tool_call::Column::ExpiresAt.gt(self.now.as_micros());
        let later = tool_call::Column::ExpiresAt.lt(until.as_micros());
        let extended = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::ExpiresAt, Expr::value(until.as_micros()))
            .col_expr(tool_call::Column::RemindAt, Expr::value(remind_at.map(Timestamp::as_micros)))
            .filter(tool_call::Column::ToolCallId.eq(call.id.to_string()))
            .filter(waits.and(in_time).and(later))
            .exec(&self.tx)
            .await?;
        if extended.rows_affected == 0 {
            return Ok(false);
        }
        let data = EventData::Extended { tool_name: call.name.clone(), from, expires_at: until };
        self.event(EventType::ToolExtended, actor, &Subject::call(thread, call), data);
        Ok(true)
    }
}
