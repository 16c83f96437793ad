//! Rows of `tool_requests`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "tool_requests")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) request_id: String,
    pub(crate) tool_call_id: String,
    pub(crate) tenant_id: String,
    pub(crate) user_id: String,
    pub(crate) held_tool: Option<String>,
    pub(crate) exec_id: String,
    pub(crate) server_key: Option<String>,
    pub(crate) kind: String,
    pub(crate) message: String,
    pub(crate) answer_schema: String,
    pub(crate) state: String,
    pub(crate) content: Option<String>,
    pub(crate) content_hash: Option<String>,
    pub(crate) answered_by: Option<String>,
    pub(crate) created_at: i64,
    pub(crate) expires_at: i64,
    pub(crate) answered_at: Option<i64>,
    pub(crate) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {
    #[sea_orm(
        belongs_to = "super::tool_call::Entity",
        from = "Column::ToolCallId",
        to = "super::tool_call::Column::ToolCallId"
    )]
    Call,
}

impl ActiveModelBehavior for ActiveModel {}
