//! Rows of `decisions`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "decisions")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) decision_id: String,
    pub(in crate::store) tool_call_id: String,
    pub(in crate::store) actor: String,
    pub(in crate::store) on_behalf_of: Option<String>,
    pub(in crate::store) verdict: String,
    #[sea_orm(column_name = "final")]
    pub(in crate::store) is_final: bool,
    pub(in crate::store) edited: bool,
    pub(in crate::store) input_hash: String,
    pub(in crate::store) reason: Option<String>,
    pub(in crate::store) remember: Option<String>,
    pub(in crate::store) surface: String,
    pub(in crate::store) source: Option<String>,
    pub(in crate::store) at: i64,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
