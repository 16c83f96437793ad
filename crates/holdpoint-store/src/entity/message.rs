//! Rows of `messages`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "messages")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) message_id: String,
    pub(crate) thread_id: String,
    pub(crate) run_id: String,
    pub(crate) ordinal: i64,
    pub(crate) role: String,
    pub(crate) client_id: Option<String>,
    pub(crate) content: Option<String>,
    pub(crate) created_at: i64,
    pub(crate) superseded_at: Option<i64>,
    pub(crate) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {
    /// The run that the message answers, if it is an answer.
    #[sea_orm(
        belongs_to = "super::run::Entity",
        from = "Column::MessageId",
        to = "super::run::Column::AssistantMessageId"
    )]
    AnsweredRun,
}

impl ActiveModelBehavior for ActiveModel {}
