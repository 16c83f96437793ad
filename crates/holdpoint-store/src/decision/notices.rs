//! Reminders of deadlines, and escalations to further roles, of calls that wait for a decision.

use crate::entity::{escalation, tool_call};
use crate::event::new_event::Subject;
use crate::{StoreError, Thread, Write};
use holdpoint_core::call::{StateKind, ToolCall};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::{EventType, system};
use holdpoint_core::event_data::EventData;
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use std::collections::BTreeSet;
use std::time::Duration;

impl Write {
    /// Returns the time of the reminder of a deadline. A call that waits no longer than `before` has none.
    pub(crate) fn reminder(&self, deadline: Timestamp, before: Duration) -> Option<Timestamp> {
        let at = deadline.minus(before);
        (!before.is_zero() && at > self.now).then_some(at)
    }

    /// Reminds people of the deadline of a locked call, if that is due: once for each deadline.
    pub(crate) async fn remind(&self, thread: &Thread, call: &ToolCall) -> Result<bool, StoreError> {
        let Some(expires_at) = call.expires_at else { return Ok(false) };
        let due = tool_call::Column::RemindAt.lte(self.now.as_micros());
        let done = Expr::value(None::<i64>);
        if !self.notice(call, due, tool_call::Column::RemindAt, done).await? {
            return Ok(false);
        }
        let data = EventData::Reminded { tool_name: call.name.clone(), expires_at };
        self.event(EventType::ToolReminded, system::SWEEPER, &Subject::call(thread, call), data);
        Ok(true)
    }

    /// Lets further roles decide a locked call, if that is due: once.
    pub(crate) async fn escalate(&self, thread: &Thread, call: &ToolCall) -> Result<bool, StoreError> {
        let Some(to) = &call.escalation else { return Ok(false) };
        let due = tool_call::Column::EscalateAt.lte(self.now.as_micros());
        let due = due.and(tool_call::Column::EscalatedAt.is_null());
        let done = Expr::value(self.now.as_micros());
        if !self.notice(call, due, tool_call::Column::EscalatedAt, done).await? {
            return Ok(false);
        }
        let roles: BTreeSet<&String> = to.to.iter().collect();
        let rows = roles.into_iter().map(|role| escalation::ActiveModel {
            tool_call_id: Set(call.id.to_string()),
            tenant_id: Set(thread.tenant_id.clone()),
            role: Set(role.clone()),
            state: Set(StateKind::Pending.word().to_owned()),
        });
        escalation::Entity::insert_many(rows).exec_without_returning(&self.tx).await?;
        let data = EventData::Escalated { tool_name: call.name.clone(), roles: to.to.clone() };
        self.event(EventType::ToolEscalated, system::SWEEPER, &Subject::call(thread, call), data);
        Ok(true)
    }

    /// Sets a column of a call that still waits in time, under this condition. Returns false if no row matches.
    async fn notice(
        &self,
        call: &ToolCall,
        due: SimpleExpr,
        column: tool_call::Column,
        value: Expr,
    ) -> Result<bool, StoreError> {
        let done = tool_call::Entity::update_many()
            .col_expr(column, value)
            .filter(tool_call::Column::ToolCallId.eq(call.id.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Pending.word()))
            .filter(tool_call::Column::ExpiresAt.gt(self.now.as_micros()))
            .filter(due)
            .exec(&self.tx)
            .await?;
        Ok(done.rows_affected == 1)
    }
}
