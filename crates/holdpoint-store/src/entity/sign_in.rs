//! Rows of `sign_ins`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "sign_ins")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) sign_in_id: String,
    pub(crate) secret_hash: String,
    pub(crate) tenant_id: String,
    pub(crate) user_id: String,
    pub(crate) roles: String,
    pub(crate) known_until: i64,
    pub(crate) tokens: String,
    pub(crate) browser: String,
    pub(crate) begun_at: i64,
    pub(crate) ends_at: i64,
    pub(crate) asked_by: Option<String>,
    pub(crate) rests_until: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
