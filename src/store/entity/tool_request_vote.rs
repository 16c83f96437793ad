//! Rows of `tool_request_votes`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "tool_request_votes")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) request_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) actor: String,
    pub(in crate::store) content: Option<String>,
    pub(in crate::store) content_hash: String,
    pub(in crate::store) at: i64,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
