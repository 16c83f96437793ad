//! Rows of `links`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "links")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) token_hash: String,
    pub(crate) tool_call_id: String,
    pub(crate) tenant_id: String,
    pub(crate) user_id: String,
    pub(crate) input_hash: String,
    pub(crate) expires_at: i64,
    pub(crate) used_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
