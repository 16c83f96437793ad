//! Rows of `ticket_keys`.

use sea_orm::entity::prelude::*;
use std::fmt;

#[derive(Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "ticket_keys")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) id: i32,
    pub(crate) signing_key: String,
}

/// The key is a secret.
impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
