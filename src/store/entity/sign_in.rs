//! Rows of `sign_ins`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "sign_ins")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) sign_in_id: String,
    pub(in crate::store) secret_hash: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) user_id: String,
    pub(in crate::store) roles: String,
    pub(in crate::store) known_until: i64,
    pub(in crate::store) tokens: String,
    pub(in crate::store) browser: String,
    pub(in crate::store) begun_at: i64,
    pub(in crate::store) ends_at: i64,
    pub(in crate::store) asked_by: Option<String>,
    pub(in crate::store) rests_until: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
