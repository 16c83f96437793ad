//! Rows of `delegations`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "delegations")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) delegation_id: String,
    pub(crate) tool_call_id: String,
    pub(crate) tenant_id: String,
    pub(crate) delegator: String,
    pub(crate) delegate: String,
    pub(crate) roles: String,
    pub(crate) reason: String,
    pub(crate) created_at: i64,
    pub(crate) until: i64,
    pub(crate) replaced_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
