//! Rows of `escalations`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "escalations")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) tool_call_id: String,
    pub(in crate::store) tenant_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) role: String,
    pub(in crate::store) state: String,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
