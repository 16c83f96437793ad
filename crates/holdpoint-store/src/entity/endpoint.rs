//! Rows of `endpoints`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "endpoints")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) name: String,
    pub(crate) tenant_id: String,
    pub(crate) channel: String,
    pub(crate) cursor: i64,
    pub(crate) state: String,
    pub(crate) failures: i32,
    pub(crate) failing_since: Option<i64>,
    pub(crate) last_failure: Option<String>,
    pub(crate) next_attempt_at: Option<i64>,
    pub(crate) disabled_at: Option<i64>,
    pub(crate) disabled_reason: Option<String>,
    pub(crate) refused: i32,
    pub(crate) refused_at: Option<i64>,
    pub(crate) refused_status: Option<i32>,
    /// The process that delivers, until `lease_until`.
    pub(crate) holder: Option<String>,
    pub(crate) lease_until: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
