//! Calls with an owner: an external service that accepted the call, and reports its outcome later. Such a call has a
//! result deadline in place of a lease. Its execution id does not change, so a report settles it as the process of a
//! lease does: with [`Write::settle`], also after the deadline.

use super::entity::tool_call;
use super::events::{OfCall, Subject};
use super::{LockedRow, StoreError, Write, rows};
use crate::domain::call::{Execution, StateKind};
use crate::domain::event::{EventType, system};
use crate::domain::id::ToolCallId;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::json;
use std::time::Duration;

impl Write {
    /// Hands an execution over to the owner of the call, which reports the outcome within this time, and commits.
    /// Returns false if the execution does not hold the call: it was settled, by a report that came first or without
    /// this execution. A retry after an unconfirmed commit finds the owner.
    pub(crate) async fn hand_over(
        self,
        call: ToolCallId,
        execution: Execution,
        within: Duration,
    ) -> Result<bool, StoreError> {
        let own = execution.id.to_string();
        let locked = self.lock_row(call).await?.filter(|it| it.call.exec_id.as_ref() == Some(&own));
        let Some(locked) = locked else { return Ok(false) };
        if locked.call.result_deadline.is_some() {
            return Ok(true);
        }
        let until = self.now.plus(within);
        let handed = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::ResultDeadline, Expr::value(until.as_micros()))
            .col_expr(tool_call::Column::LeaseUntil, Expr::value(None::<i64>))
            .filter(tool_call::Column::ToolCallId.eq(call.to_string()))
            .filter(tool_call::Column::State.eq(StateKind::Executing))
            .filter(tool_call::Column::ExecId.eq(own))
            .filter(tool_call::Column::ChildRunId.is_null())
            .exec(&self.tx)
            .await?;
        if handed.rows_affected == 0 {
            return Ok(false);
        }
        let LockedRow { call: row, thread, .. } = &locked;
        let facts = json!({
            "tool_name": row.name,
            "attempt": execution.attempt,
            "result_deadline": until.to_rfc3339(),
        });
        let held_tool = row.held.then_some(row.name.as_str());
        let of_call = OfCall { id: call, held_tool };
        let subject = Subject { thread, run_id: rows::id("tool_calls", &row.run_id)?, call: Some(of_call) };
        let actor = row.decided_by.as_deref().unwrap_or(system::POLICY);
        self.event(EventType::ToolAccepted, actor, &subject, facts);
        self.commit().await?;
        Ok(true)
    }

    /// Ends a call whose result deadline is reached: its outcome is unknown, and the server resumes its run.
    pub(super) async fn end_unreported(&self, locked: &LockedRow) -> Result<bool, StoreError> {
        let reached = tool_call::Column::ResultDeadline.lte(self.now.as_micros());
        if !self.interrupt(locked, reached, system::SWEEPER).await? {
            return Ok(false);
        }
        self.set_server_resumes(&locked.thread, rows::id("tool_calls", &locked.call.run_id)?).await?;
        Ok(true)
    }
}
