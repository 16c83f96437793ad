//! Rows of `endpoints`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "endpoints")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) name: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) channel: String,
    pub(in crate::store) cursor: i64,
    pub(in crate::store) state: String,
    pub(in crate::store) failures: i32,
    pub(in crate::store) failing_since: Option<i64>,
    pub(in crate::store) last_failure: Option<String>,
    pub(in crate::store) next_attempt_at: Option<i64>,
    pub(in crate::store) disabled_at: Option<i64>,
    pub(in crate::store) disabled_reason: Option<String>,
    pub(in crate::store) refused: i32,
    pub(in crate::store) refused_at: Option<i64>,
    pub(in crate::store) refused_status: Option<i32>,
    /// The process that delivers, until `lease_until`.
    pub(in crate::store) holder: Option<String>,
    pub(in crate::store) lease_until: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
