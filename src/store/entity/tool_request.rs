//! Rows of `tool_requests`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "tool_requests")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) request_id: String,
    pub(in crate::store) tool_call_id: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) user_id: String,
    pub(in crate::store) held_tool: Option<String>,
    pub(in crate::store) exec_id: String,
    pub(in crate::store) server_key: Option<String>,
    pub(in crate::store) kind: String,
    pub(in crate::store) message: String,
    pub(in crate::store) answer_schema: String,
    pub(in crate::store) state: String,
    pub(in crate::store) content: Option<String>,
    pub(in crate::store) content_hash: Option<String>,
    pub(in crate::store) answered_by: Option<String>,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) expires_at: i64,
    pub(in crate::store) answered_at: Option<i64>,
    pub(in crate::store) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {
    #[sea_orm(
        belongs_to = "super::tool_call::Entity",
        from = "Column::ToolCallId",
        to = "super::tool_call::Column::ToolCallId"
    )]
    Call,
}

impl ActiveModelBehavior for ActiveModel {}
