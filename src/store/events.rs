//! Events: one row for each change, in its transaction. They hold hashes, never inputs or results.

use super::entity::event;
use super::{StoreError, Thread, Write};
use crate::domain::event::{EventType, system};
use crate::domain::id::{RunId, ToolCallId};
use sea_orm::{ActiveValue::Set, EntityTrait};
use serde_json::Value;

/// What an event is about.
pub(super) struct Subject<'a> {
    pub(super) thread: &'a Thread,
    pub(super) run_id: RunId,
    pub(super) tool_call_id: Option<ToolCallId>,
}

impl Write {
    pub(super) async fn event(
        &self,
        event_type: EventType,
        actor: &str,
        subject: &Subject<'_>,
        data: Value,
    ) -> Result<(), StoreError> {
        let row = event::ActiveModel {
            event_id: Set(self.clock.uuid().to_string()),
            event_type: Set(event_type.as_str().to_owned()),
            at: Set(self.now.as_micros()),
            actor: Set(actor.to_owned()),
            tenant_id: Set(subject.thread.tenant_id.clone()),
            session_id: Set(subject.thread.session_id.to_string()),
            thread_id: Set(subject.thread.id.to_string()),
            run_id: Set(Some(subject.run_id.to_string())),
            tool_call_id: Set(subject.tool_call_id.map(|id| id.to_string())),
            data: Set(data.to_string()),
        };
        #[cfg(feature = "torture")]
        self.name.set(event_type.as_str(), subject.tool_call_id.as_ref().map(|id| id as _));
        event::Entity::insert(row).exec_without_returning(&self.tx).await?;
        self.count(event_type, actor, &data);
        Ok(())
    }
}

/// The state that an event says a call has come to.
pub(super) fn state_reached(event: EventType, actor: &str, data: &Value) -> Option<&'static str> {
    Some(match event {
        EventType::ToolRequiresApproval => "pending",
        EventType::ToolApproved => "approved",
        EventType::ToolRejected => "rejected",
        EventType::ToolExpired => "expired",
        EventType::ToolCancelled => "cancelled",
        EventType::ToolStarted => "executing",
        EventType::ToolSucceeded => "succeeded",
        EventType::ToolFailed if actor == system::INVALID => "invalid",
        EventType::ToolFailed => "failed",
        // It will be begun again.
        EventType::ToolInterrupted if data.get("state").is_some_and(|it| it == "approved") => "approved",
        EventType::ToolInterrupted => "interrupted",
        EventType::ToolCalled
        | EventType::RunStarted
        | EventType::RunWaiting
        | EventType::RunResumed
        | EventType::RunCompleted
        | EventType::RunFailed
        | EventType::RunCancelled => return None,
    })
}
