//! Rows of `links`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "links")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) token_hash: String,
    pub(in crate::store) tool_call_id: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) user_id: String,
    pub(in crate::store) input_hash: String,
    pub(in crate::store) expires_at: i64,
    pub(in crate::store) used_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
