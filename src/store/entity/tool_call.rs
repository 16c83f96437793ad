//! Rows of `tool_calls`.

use sea_orm::entity::prelude::*;

#[derive(Debug, Clone, PartialEq, DeriveEntityModel)]
#[sea_orm(schema_name = "holdpoint", table_name = "tool_calls")]
pub(in crate::store) struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub(in crate::store) tool_call_id: String,
    pub(in crate::store) thread_id: String,
    pub(in crate::store) tenant_id: String,
    pub(in crate::store) message_id: String,
    pub(in crate::store) step: i32,
    pub(in crate::store) ordinal: i32,
    pub(in crate::store) run_id: String,
    pub(in crate::store) provider_call_id: String,
    pub(in crate::store) wire_call_id: String,
    pub(in crate::store) name: String,
    pub(in crate::store) arguments: String,
    pub(in crate::store) model_arguments: Option<String>,
    pub(in crate::store) secret_paths: Option<String>,
    pub(in crate::store) schema_hash: String,
    pub(in crate::store) held: bool,
    pub(in crate::store) listed_for: Option<String>,
    pub(in crate::store) idempotent: bool,
    pub(in crate::store) risk_level: String,
    pub(in crate::store) reason: Option<String>,
    pub(in crate::store) preview: Option<String>,
    pub(in crate::store) preview_failed: Option<bool>,
    pub(in crate::store) state: String,
    pub(in crate::store) validated: Option<bool>,
    pub(in crate::store) validated_inputs: Option<String>,
    pub(in crate::store) validated_preview: Option<String>,
    pub(in crate::store) validated_preview_failed: Option<bool>,
    pub(in crate::store) decided_by: Option<String>,
    pub(in crate::store) decided_at: Option<i64>,
    pub(in crate::store) expires_at: Option<i64>,
    pub(in crate::store) remind_at: Option<i64>,
    pub(in crate::store) escalate_at: Option<i64>,
    pub(in crate::store) escalate_to: Option<String>,
    pub(in crate::store) escalated_at: Option<i64>,
    pub(in crate::store) start_deadline: Option<i64>,
    pub(in crate::store) exec_id: Option<String>,
    pub(in crate::store) exec_owner: Option<String>,
    pub(in crate::store) exec_attempt: i32,
    pub(in crate::store) lease_until: Option<i64>,
    pub(in crate::store) started_at: Option<i64>,
    pub(in crate::store) child_run_id: Option<String>,
    pub(in crate::store) by_worker: bool,
    pub(in crate::store) permit_hash: Option<String>,
    pub(in crate::store) result_deadline: Option<i64>,
    pub(in crate::store) mcp_server: Option<String>,
    pub(in crate::store) task_id: Option<String>,
    pub(in crate::store) input_round: Option<String>,
    pub(in crate::store) polled_by: Option<String>,
    pub(in crate::store) polled_until: Option<i64>,
    pub(in crate::store) progress: Option<String>,
    pub(in crate::store) cancel_requested_at: Option<i64>,
    pub(in crate::store) output: Option<String>,
    pub(in crate::store) result: Option<String>,
    pub(in crate::store) created_at: i64,
    pub(in crate::store) finished_at: Option<i64>,
    pub(in crate::store) erased_at: Option<i64>,
}

#[derive(Debug, Clone, Copy, EnumIter, DeriveRelation)]
pub(in crate::store) enum Relation {
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
