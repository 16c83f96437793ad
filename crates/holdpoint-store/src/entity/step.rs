//! Rows of `message_steps`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "message_steps")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) message_id: String,
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) n: i32,
    pub(crate) status: String,
    pub(crate) parts: String,
    pub(crate) finish_reason: Option<String>,
    pub(crate) input_tokens: Option<i64>,
    pub(crate) output_tokens: Option<i64>,
    pub(crate) origin: Option<String>,
    pub(crate) provider_state: Option<String>,
    pub(crate) turns_left_out: i32,
    pub(crate) turns_shortened: i32,
    pub(crate) refused_tokens: Option<i64>,
    pub(crate) created_at: i64,
    pub(crate) finished_at: Option<i64>,
    pub(crate) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {
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
