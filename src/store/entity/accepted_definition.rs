//! Rows of `accepted_definitions`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "accepted_definitions")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) tool_name: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) n: i32,
    pub(in crate::store) server: String,
    pub(in crate::store) hash: String,
    pub(in crate::store) definition: String,
    pub(in crate::store) accepted_by: String,
    pub(in crate::store) accepted_at: i64,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
