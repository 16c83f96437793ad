//! Rows of `messages`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "messages")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) message_id: String,
    pub(in crate::store) thread_id: String,
    pub(in crate::store) run_id: String,
    pub(in crate::store) ordinal: i64,
    pub(in crate::store) role: String,
    pub(in crate::store) status: String,
    pub(in crate::store) client_id: Option<String>,
    pub(in crate::store) content: Option<String>,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
