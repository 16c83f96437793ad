//! Rows of `tool_request_votes`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "tool_request_votes")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) request_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) actor: String,
    pub(crate) content: Option<String>,
    pub(crate) content_hash: String,
    pub(crate) at: i64,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
