//! Rows of `grants`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "grants")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) grant_id: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) session_id: String,
    pub(in crate::store) tool_name: String,
    pub(in crate::store) schema_hash: String,
    pub(in crate::store) input_hash: Option<String>,
    pub(in crate::store) input_bounds: Option<String>,
    pub(in crate::store) until: Option<i64>,
    pub(in crate::store) uses: Option<i32>,
    pub(in crate::store) uses_left: Option<i32>,
    pub(in crate::store) process_id: Option<String>,
    pub(in crate::store) granted_by: String,
    pub(in crate::store) roles: String,
    pub(in crate::store) tool_call_id: String,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) revoked_at: Option<i64>,
    pub(in crate::store) revoked_by: Option<String>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
