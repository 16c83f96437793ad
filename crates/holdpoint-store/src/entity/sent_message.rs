//! Rows of `slack_messages`: the messages of any channel that changes its messages.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "slack_messages")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) endpoint: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) tool_call_id: String,
    pub(crate) channel: String,
    pub(crate) ts: String,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
