//! Rows of `slack_messages`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "slack_messages")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) endpoint: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) tool_call_id: String,
    pub(in crate::store) channel: String,
    pub(in crate::store) ts: String,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
