//! Rows of `tool_calls`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "tool_calls")]
pub(crate) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(crate) tool_call_id: String,
    pub(crate) thread_id: String,
    pub(crate) tenant_id: String,
    pub(crate) message_id: String,
    pub(crate) step: i32,
    pub(crate) ordinal: i32,
    pub(crate) run_id: String,
    pub(crate) provider_call_id: String,
    pub(crate) wire_call_id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) model_arguments: Option<String>,
    pub(crate) secret_paths: Option<String>,
    pub(crate) schema_hash: String,
    pub(crate) held: bool,
    pub(crate) listed_for: Option<String>,
    pub(crate) idempotent: bool,
    pub(crate) risk_level: String,
    pub(crate) reason: Option<String>,
    pub(crate) preview: Option<String>,
    pub(crate) preview_failed: Option<bool>,
    pub(crate) state: String,
    pub(crate) validated: Option<bool>,
    pub(crate) validated_inputs: Option<String>,
    pub(crate) validated_preview: Option<String>,
    pub(crate) validated_preview_failed: Option<bool>,
    pub(crate) decided_by: Option<String>,
    pub(crate) decided_at: Option<i64>,
    pub(crate) expires_at: Option<i64>,
    pub(crate) remind_at: Option<i64>,
    pub(crate) escalate_at: Option<i64>,
    pub(crate) escalate_to: Option<String>,
    pub(crate) escalated_at: Option<i64>,
    pub(crate) start_deadline: Option<i64>,
    pub(crate) exec_id: Option<String>,
    pub(crate) exec_owner: Option<String>,
    pub(crate) exec_attempt: i32,
    pub(crate) lease_until: Option<i64>,
    pub(crate) started_at: Option<i64>,
    pub(crate) child_run_id: Option<String>,
    pub(crate) by_worker: bool,
    pub(crate) permit_hash: Option<String>,
    pub(crate) result_deadline: Option<i64>,
    pub(crate) mcp_server: Option<String>,
    pub(crate) task_id: Option<String>,
    pub(crate) input_round: Option<String>,
    pub(crate) polled_by: Option<String>,
    pub(crate) polled_until: Option<i64>,
    pub(crate) progress: Option<String>,
    pub(crate) cancel_requested_at: Option<i64>,
    pub(crate) output: Option<String>,
    pub(crate) result: Option<String>,
    pub(crate) created_at: i64,
    pub(crate) finished_at: Option<i64>,
    pub(crate) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(crate) enum Relation {
    #[sea_orm(
        belongs_to = "super::thread::Entity",
        from = "Column::ThreadId",
        to = "super::thread::Column::ThreadId"
    )]
    Thread,
    #[sea_orm(belongs_to = "super::run::Entity", from = "Column::RunId", to = "super::run::Column::RunId")]
    Run,
}

impl Related<super::thread::Entity> for Entity {
    fn to() -> RelationDef {
        Relation::Thread.def()
    }
}

impl ActiveModelBehavior for ActiveModel {}
