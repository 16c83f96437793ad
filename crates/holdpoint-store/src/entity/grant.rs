//! Rows of `grants`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "grants")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) grant_id: String,
    pub(crate) tenant_id: String,
    pub(crate) session_id: String,
    pub(crate) tool_name: String,
    pub(crate) schema_hash: String,
    pub(crate) input_hash: Option<String>,
    pub(crate) input_bounds: Option<String>,
    pub(crate) until: Option<i64>,
    pub(crate) uses: Option<i32>,
    pub(crate) uses_left: Option<i32>,
    pub(crate) process_id: Option<String>,
    pub(crate) granted_by: String,
    pub(crate) roles: String,
    pub(crate) tool_call_id: String,
    pub(crate) created_at: i64,
    pub(crate) revoked_at: Option<i64>,
    pub(crate) revoked_by: Option<String>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
