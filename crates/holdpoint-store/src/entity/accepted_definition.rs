//! Rows of `accepted_definitions`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "accepted_definitions")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) tool_name: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) n: i32,
    pub(crate) server: String,
    pub(crate) hash: String,
    pub(crate) definition: String,
    pub(crate) accepted_by: String,
    pub(crate) accepted_at: i64,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
