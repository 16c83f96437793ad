//! Rows of `runs`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "runs")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) run_id: String,
    pub(in crate::store) thread_id: String,
    pub(in crate::store) user_message_id: String,
    pub(in crate::store) assistant_message_id: String,
    pub(in crate::store) status: String,
    pub(in crate::store) model: Option<String>,
    pub(in crate::store) tools: Option<String>,
    pub(in crate::store) instructions: Option<String>,
    pub(in crate::store) roles: String,
    pub(in crate::store) owner: Option<String>,
    pub(in crate::store) lease_until: Option<i64>,
    pub(in crate::store) cancel_requested_at: Option<i64>,
    pub(in crate::store) server_resumes: bool,
    pub(in crate::store) resumed_alone: bool,
    pub(in crate::store) error_code: Option<String>,
    pub(in crate::store) error_message: Option<String>,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) finished_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {
    #[sea_orm(
        belongs_to = "super::thread::Entity",
        from = "Column::ThreadId",
        to = "super::thread::Column::ThreadId"
    )]
    Thread,
    #[sea_orm(
        belongs_to = "super::message::Entity",
        from = "Column::AssistantMessageId",
        to = "super::message::Column::MessageId"
    )]
    Answer,
}

impl Related<super::thread::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Thread.def()
    }
}

impl ActiveModelBehavior for ActiveModel {}
