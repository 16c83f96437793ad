//! Drafts of a step in progress.

use crate::entity::{run, step};
use crate::sql::parts::write_parts;
use crate::{Lease, StoreError, Write};
use holdpoint_core::id::{MessageId, RunId};
use holdpoint_core::message::{Part, StepStatus};
use holdpoint_core::run::RunStatus;
use sea_orm::sea_query::{Expr, ExprTrait, IntoIden, IntoValueTuple, Query, TableRef, ValueTuple};
use sea_orm::{ColumnTrait, ConnectionTrait, EntityName};

/// The name of the drafts in their statement.
const DRAFT: &str = "draft";

/// A step that a turn writes, for the writer of its drafts.
#[derive(Debug, Clone)]
pub struct OpenStep {
    message_id: MessageId,
    n: i32,
    run_id: RunId,
    holder: String,
}

impl Lease {
    /// Returns this step of the turn.
    pub fn open_step(&self, n: i32) -> OpenStep {
        let Self { run, holder, .. } = self;
        OpenStep { message_id: run.assistant_message_id, n, run_id: run.id, holder: holder.clone() }
    }
}

/// The output of a step so far.
#[derive(Debug)]
pub struct Draft {
    pub step: OpenStep,
    /// Its parts, which may name calls that are not stored.
    pub parts: Vec<Part>,
}

impl Draft {
    /// Returns the draft as a row of [`DRAFT`].
    fn row(&self) -> ValueTuple {
        let OpenStep { message_id, n, run_id, holder } = &self.step;
        let (message_id, run_id) = (message_id.to_string(), run_id.to_string());
        (message_id, *n, run_id, holder.clone(), write_parts(&self.parts)).into_value_tuple()
    }
}

impl Write {
    /// Stores drafts of different steps with one statement. A step keeps its content if another holder writes it, or
    /// if it is complete. The method does not lock the threads: a draft moves no state, and no task waits for it.
    pub async fn draft_steps(&self, drafts: &[Draft]) -> Result<(), StoreError> {
        self.name_commit("step.drafted", None);
        let of_draft = |column: &'static str| Expr::col((DRAFT, column));
        let held = Query::select()
            .column(run::Column::RunId)
            .from(run::Entity.table_ref())
            .and_where(run::Column::RunId.into_expr().eq(of_draft("column3")))
            .and_where(run::Column::Owner.into_expr().eq(of_draft("column4")))
            .and_where(run::Column::Status.eq(RunStatus::Running.word()))
            .to_owned();
        let mut rows: Vec<_> = drafts.iter().map(Draft::row).collect();
        // Rows of no step. A connection keeps few prepared statements, and each number of rows is another statement.
        rows.resize_with(rows.len().next_power_of_two(), || ("", 0, "", "", "").into_value_tuple());
        let update = Query::update()
            .table(step::Entity.table_ref())
            .value(step::Column::Parts, of_draft("column5"))
            .from(TableRef::ValuesList(rows, DRAFT.into_iden()))
            .and_where(step::Column::MessageId.into_expr().eq(of_draft("column1")))
            .and_where(step::Column::N.into_expr().eq(of_draft("column2")))
            .and_where(step::Column::Status.eq(StepStatus::Streaming.word()))
            .and_where(Expr::exists(held))
            .to_owned();
        self.tx.execute_raw(self.tx.get_database_backend().build(&update)).await?;
        Ok(())
    }
}
