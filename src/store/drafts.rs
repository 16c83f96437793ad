//! Drafts of a step in progress.

use super::entity::{run, step};
use super::parts::write_parts;
use super::{Lease, StoreError, Write};
use crate::domain::id::{MessageId, RunId};
use crate::domain::message::{Part, StepStatus};
use crate::domain::run::RunStatus;
use sea_orm::sea_query::{Expr, Query};
use sea_orm::{ColumnTrait, EntityName, EntityTrait, QueryFilter};

/// A step that a turn writes, for the task that stores its drafts.
#[derive(Debug, Clone)]
pub(crate) struct OpenStep {
    message_id: MessageId,
    n: i32,
    run_id: RunId,
    holder: String,
}

impl Lease {
    /// Returns this step of the turn.
    pub(crate) fn open_step(&self, n: i32) -> OpenStep {
        let Self { run, holder, .. } = self;
        OpenStep { message_id: run.assistant_message_id, n, run_id: run.id, holder: holder.clone() }
    }
}

impl Write {
    /// Stores a draft of a step if the same holder still writes the step. The draft may name calls that are
    /// not stored. The method does not lock the thread: the draft moves no state, and no task waits for it.
    pub(crate) async fn draft_step(&self, open: &OpenStep, parts: &[Part]) -> Result<(), StoreError> {
        self.name_commit("step.drafted", None);
        let held = Query::select()
            .column(run::Column::RunId)
            .from(run::Entity.table_ref())
            .and_where(run::Column::RunId.eq(open.run_id.to_string()))
            .and_where(run::Column::Status.eq(RunStatus::Running))
            .and_where(run::Column::Owner.eq(&open.holder))
            .to_owned();
        step::Entity::update_many()
            .col_expr(step::Column::Parts, Expr::value(write_parts(parts)))
            .filter(step::Column::MessageId.eq(open.message_id.to_string()))
            .filter(step::Column::N.eq(open.n))
            .filter(step::Column::Status.eq(StepStatus::Streaming))
            .filter(Expr::exists(held))
            .exec(&self.tx)
            .await?;
        Ok(())
    }
}
