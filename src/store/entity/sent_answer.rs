//! Rows of `sent_answers`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "sent_answers")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) tool_call_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) n: i32,
    pub(in crate::store) kind: String,
    pub(in crate::store) text: String,
    pub(in crate::store) message_id: String,
    pub(in crate::store) step: i32,
    pub(in crate::store) at: i64,
    pub(in crate::store) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
