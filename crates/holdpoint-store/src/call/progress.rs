//! Reports of progress: the last one is in the row of the call, while the execution that reported it has the call.

use crate::entity::tool_call;
use crate::event::new_event::{NewEvent, OfCall, Subject};
use crate::{LockedRow, StoreError, Write, sql::rows};
use holdpoint_core::call::{Execution, StateKind};
use holdpoint_core::card::progress::Progress;
use holdpoint_core::event::{EventType, system};
use holdpoint_core::event_data::EventData;
use holdpoint_core::id::ToolCallId;
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::json;

const TABLE: &str = "tool_calls";

impl Write {
    /// Stores a report of an execution, if it holds the call.
    pub async fn report_progress(
        &self,
        call: ToolCallId,
        execution: Execution,
        progress: &Progress,
    ) -> Result<(), StoreError> {
        match self.lock_row(call).await? {
            Some(locked) => self.report_progress_of(&locked, execution, progress).await,
            None => Ok(()),
        }
    }

    /// Stores a report about a locked call, if the execution holds it. The report is an event if the last event is old
    /// enough.
    pub(crate) async fn report_progress_of(
        &self,
        locked: &LockedRow,
        execution: Execution,
        progress: &Progress,
    ) -> Result<(), StoreError> {
        let LockedRow { call: row, thread, .. } = locked;
        let before = rows::progress(row);
        let is_event = before.as_ref().is_none_or(|last| last.is_over(execution.started_at, self.now));
        let event_at = if is_event { self.now } else { before.map_or(self.now, |last| last.event_at) };
        let Progress { message, done, total } = progress.clone();
        let (at, event_at) = (self.now.as_micros(), event_at.as_micros());
        let stored = json!(rows::StoredProgress { message, done, total, at, event_at });
        let reported = tool_call::Entity::update_many()
            .col_expr(tool_call::Column::Progress, Expr::value(stored.to_string()))
            .filter(tool_call::Column::ToolCallId.eq(&row.tool_call_id))
            .filter(tool_call::Column::State.eq(StateKind::Executing.word()))
            .filter(tool_call::Column::ExecId.eq(execution.id.to_string()));
        if !is_event {
            reported.exec(&self.tx).await?;
            return Ok(());
        }
        let id = rows::id(TABLE, &row.tool_call_id)?;
        let of_call = OfCall { id, tool: &row.name, is_held: row.held };
        let subject = Subject { thread, run_id: rows::id(TABLE, &row.run_id)?, call: Some(of_call) };
        let actor = row.decided_by.as_deref().unwrap_or(system::POLICY);
        let data =
            EventData::Attempt { tool_name: row.name.clone(), attempt: execution.attempt, worker: None };
        let event_type = EventType::ToolProgressed;
        self.update_with_event(reported, &NewEvent { event_type, actor, subject: &subject, data }).await?;
        Ok(())
    }
}
