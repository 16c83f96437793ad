//! Rows of `events`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "events")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) event_id: String,
    /// `None` until the event is numbered.
    pub(in crate::store) seq: Option<i64>,
    #[sea_orm(column_name = "type")]
    pub(in crate::store) event_type: String,
    pub(in crate::store) at: i64,
    pub(in crate::store) actor: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) user_id: String,
    /// The tool of the event's call, if the call is held.
    pub(in crate::store) held_tool: Option<String>,
    pub(in crate::store) session_id: String,
    pub(in crate::store) thread_id: String,
    pub(in crate::store) run_id: Option<String>,
    pub(in crate::store) tool_call_id: Option<String>,
    pub(in crate::store) data: String,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
