//! Rows of `messages`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "messages")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) message_id: String,
    pub(crate) thread_id: String,
    pub(crate) run_id: String,
    pub(crate) ordinal: i64,
    pub(crate) role: String,
    pub(crate) status: String,
    pub(crate) client_id: Option<String>,
    pub(crate) content: Option<String>,
    pub(crate) created_at: i64,
    pub(crate) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
