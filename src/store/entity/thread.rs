//! Rows of `threads`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "threads")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) thread_id: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) user_id: String,
    pub(in crate::store) session_id: String,
    pub(in crate::store) parent_id: Option<String>,
    pub(in crate::store) client_id: Option<String>,
    pub(in crate::store) title: String,
    pub(in crate::store) policy: Option<String>,
    pub(in crate::store) messages: i64,
    pub(in crate::store) bytes: i64,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) updated_at: i64,
    pub(in crate::store) deleted_at: Option<i64>,
    pub(in crate::store) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
