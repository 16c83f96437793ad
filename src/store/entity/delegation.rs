//! Rows of `delegations`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "delegations")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) delegation_id: String,
    pub(in crate::store) tool_call_id: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) delegator: String,
    pub(in crate::store) delegate: String,
    pub(in crate::store) roles: String,
    pub(in crate::store) reason: String,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) until: i64,
    pub(in crate::store) replaced_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
