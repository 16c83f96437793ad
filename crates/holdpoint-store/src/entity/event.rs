//! Rows of `events`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "events")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) event_id: String,
    /// `None` until the event is numbered.
    pub(crate) seq: Option<i64>,
    #[sea_orm(column_name = "type")]
    pub(crate) event_type: String,
    pub(crate) at: i64,
    pub(crate) actor: String,
    pub(crate) tenant_id: String,
    pub(crate) user_id: String,
    /// The tool of the event's call, if the call is held.
    pub(crate) held_tool: Option<String>,
    pub(crate) session_id: String,
    pub(crate) thread_id: String,
    pub(crate) run_id: Option<String>,
    pub(crate) tool_call_id: Option<String>,
    pub(crate) data: String,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
