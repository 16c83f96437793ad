//! Rows of `message_steps`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "message_steps")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) message_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) n: i32,
    pub(in crate::store) status: String,
    pub(in crate::store) parts: String,
    pub(in crate::store) finish_reason: Option<String>,
    pub(in crate::store) input_tokens: Option<i64>,
    pub(in crate::store) output_tokens: Option<i64>,
    pub(in crate::store) origin: Option<String>,
    pub(in crate::store) provider_state: Option<String>,
    pub(in crate::store) turns_left_out: i32,
    pub(in crate::store) turns_shortened: i32,
    pub(in crate::store) refused_tokens: Option<i64>,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) finished_at: Option<i64>,
    pub(in crate::store) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {
    #[sea_orm(
        belongs_to = "super::message::Entity",
        from = "Column::MessageId",
        to = "super::message::Column::MessageId"
    )]
    Message,
}

impl Related<super::message::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Message.def()
    }
}

impl ActiveModelBehavior for ActiveModel {}
