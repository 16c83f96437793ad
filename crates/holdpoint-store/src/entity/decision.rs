//! Rows of `decisions`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "decisions")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) decision_id: String,
    pub(crate) tool_call_id: String,
    pub(crate) actor: String,
    pub(crate) on_behalf_of: Option<String>,
    pub(crate) verdict: String,
    #[sea_orm(column_name = "final")]
    pub(crate) is_final: bool,
    pub(crate) edited: bool,
    pub(crate) input_hash: String,
    pub(crate) reason: Option<String>,
    pub(crate) remember: Option<String>,
    pub(crate) surface: String,
    pub(crate) source: Option<String>,
    pub(crate) at: i64,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
