//! Rows of `runs`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "runs")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) run_id: String,
    pub(crate) thread_id: String,
    pub(crate) user_message_id: String,
    pub(crate) assistant_message_id: String,
    pub(crate) status: String,
    pub(crate) model: Option<String>,
    pub(crate) tools: Option<String>,
    pub(crate) instructions: Option<String>,
    pub(crate) roles: String,
    pub(crate) owner: Option<String>,
    pub(crate) lease_until: Option<i64>,
    pub(crate) cancel_requested_at: Option<i64>,
    pub(crate) cut_short: bool,
    pub(crate) server_resumes: bool,
    pub(crate) resumed_alone: bool,
    pub(crate) error_code: Option<String>,
    pub(crate) error_message: Option<String>,
    pub(crate) created_at: i64,
    pub(crate) finished_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {
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
