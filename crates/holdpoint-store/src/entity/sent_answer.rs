//! Rows of `sent_answers`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "sent_answers")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) tool_call_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) n: i32,
    pub(crate) kind: String,
    pub(crate) text: String,
    pub(crate) message_id: String,
    pub(crate) step: i32,
    pub(crate) at: i64,
    pub(crate) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
