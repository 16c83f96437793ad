//! Runs that the server resumes.

use crate::entity::{run, tool_call};
use crate::run::sub_agents::DELEGATED;
use crate::{LockedThread, Read, StoreError, Write, sql::rows};
use holdpoint_core::id::RunId;
use holdpoint_core::run::{Run, RunStatus};
use sea_orm::sea_query::{Expr, ExprTrait, Query, SimpleExpr};
use sea_orm::{
    ColumnTrait, ConnectionTrait, EntityName, EntityTrait, FromQueryResult, QueryFilter, QueryTrait,
    UpdateMany,
};

/// Maximum number of runs that one query returns.
const PAGE: u64 = 100;

/// Paused runs that the server may resume. A literal without parameters, so that the partial index
/// `runs_resumed` is usable.
pub(crate) const PAUSED: &str = "server_resumes AND status IN ('waiting', 'failed')";

/// Runs that the server resumes because a call waits for them, whichever decider decided their held calls.
const CHILD_PAUSED: &str = r#"(status = 'waiting' AND EXISTS (SELECT 1 FROM "holdpoint".tool_calls
    WHERE tool_calls.child_run_id = runs.run_id AND tool_calls.state = 'executing'))"#;

/// The kinds of work of the resumer.
#[derive(Debug, Clone, Copy, FromQueryResult)]
pub struct ResumerWork {
    /// Whether a child run executes a call. It may be due to start, resume or stop, or have ended: to tell that takes
    /// another statement, which most servers never need.
    pub children: bool,
    /// Whether the server is to resume a run.
    pub runs: bool,
}

/// Matches the runs that the server is to resume and that have no open call.
fn is_to_resume() -> SimpleExpr {
    let open = Query::select()
        .column(tool_call::Column::ToolCallId)
        .from(tool_call::Entity.table_ref())
        .and_where(
            Expr::col((tool_call::Entity, tool_call::Column::MessageId))
                .equals((run::Entity, run::Column::AssistantMessageId)),
        )
        .and_where(tool_call::Column::FinishedAt.is_null())
        .to_owned();
    Expr::cust(PAUSED).and(Expr::exists(open).not())
}

/// Returns the update that sets whether the server resumes a run of this thread.
fn marked(thread: &LockedThread, run: RunId, server_resumes: bool) -> UpdateMany<run::Entity> {
    run::Entity::update_many()
        .col_expr(run::Column::ServerResumes, Expr::value(server_resumes))
        .filter(run::Column::RunId.eq(run.to_string()))
        .filter(run::Column::ThreadId.eq(thread.id.to_string()))
}

impl Read {
    /// Returns which work the resumer has, with one statement.
    pub async fn resumer_work(&self) -> Result<ResumerWork, StoreError> {
        let children = tool_call::Entity::find().filter(Expr::cust(DELEGATED)).into_query();
        let runs = run::Entity::find().filter(is_to_resume()).into_query();
        let work = Query::select()
            .expr_as(Expr::exists(children), "children")
            .expr_as(Expr::exists(runs), "runs")
            .to_owned();
        let work = self.tx.get_database_backend().build(&work);
        let work = ResumerWork::find_by_statement(work).one(&self.tx).await?;
        Ok(work.unwrap_or(ResumerWork { children: false, runs: false }))
    }

    /// Returns the runs after this one, in the order of their ids, that the server is to resume and that have
    /// no open call. An empty list means that no more exist.
    pub async fn runs_to_resume(&self, after: Option<RunId>) -> Result<Vec<RunId>, StoreError> {
        let paused = run::Entity::find().filter(is_to_resume());
        self.next_ids(paused, run::Column::RunId, after, PAGE).await
    }

    /// Returns the status of a run, whatever its owner, for a caller that has seen a call of the run.
    pub async fn status_of(&self, run: RunId) -> Result<Option<RunStatus>, StoreError> {
        let found = run::Entity::find_by_id(run.to_string()).one(&self.tx).await?;
        Ok(found.as_ref().map(rows::run).transpose()?.map(|run| run.status))
    }
}

impl Write {
    /// Marks a run for the server, which resumes the run after the last of its calls ended.
    pub async fn set_server_resumes(&self, thread: &LockedThread, run: RunId) -> Result<(), StoreError> {
        self.write_server_resumes(thread, run, true).await
    }

    /// Has the server resume the waiting run of a call that has expired. It does so once, until a person acts: a model
    /// that makes such calls again and again would otherwise never stop.
    pub async fn resume_after_expiry(&self, thread: &LockedThread, run: RunId) -> Result<(), StoreError> {
        let marked = marked(thread, run, true)
            .col_expr(run::Column::ResumedAlone, Expr::value(true))
            .filter(run::Column::Status.eq(RunStatus::Waiting.word()))
            .filter(run::Column::ResumedAlone.eq(false));
        marked.exec(&self.tx).await?;
        Ok(())
    }

    /// Sets the mark after an act of a person, with which the count of [`Self::resume_after_expiry`] begins anew.
    pub async fn person_resumes(
        &self,
        thread: &LockedThread,
        run: RunId,
        server_resumes: bool,
    ) -> Result<(), StoreError> {
        let marked =
            marked(thread, run, server_resumes).col_expr(run::Column::ResumedAlone, Expr::value(false));
        marked.exec(&self.tx).await?;
        Ok(())
    }

    /// Clears the mark for the server: the run has resumed already, or will never resume.
    pub async fn clear_server_resumes(&self, thread: &LockedThread, run: RunId) -> Result<(), StoreError> {
        self.write_server_resumes(thread, run, false).await
    }

    pub(crate) async fn write_server_resumes(
        &self,
        thread: &LockedThread,
        run: RunId,
        server_resumes: bool,
    ) -> Result<(), StoreError> {
        marked(thread, run, server_resumes).exec(&self.tx).await?;
        Ok(())
    }

    /// Returns a run that the server resumes now, with its thread locked. Returns `None` if the run still has
    /// to wait, or if another process resumed it first. If the user sent a later message or deleted the
    /// thread, the run never resumes. The method then clears the mark, so that after the commit the sweeper
    /// does not find the run again.
    pub async fn run_to_resume(&self, id: RunId) -> Result<Option<(Run, LockedThread)>, StoreError> {
        let found = run::Entity::find_by_id(id.to_string()).one(&self.tx).await?;
        let Some(found) = found else { return Ok(None) };
        let thread = self.lock_thread(rows::id("runs", &found.thread_id)?).await?;
        let paused = Expr::cust(PAUSED).or(Expr::cust(CHILD_PAUSED));
        let found_now = run::Entity::find_by_id(id.to_string()).filter(paused).one(&self.tx).await?;
        let Some(run) = found_now.as_ref().map(rows::run).transpose()? else { return Ok(None) };
        if self.has_open_calls(id).await? {
            return Ok(None);
        }
        let is_latest = self.latest_run(&thread).await?.is_some_and(|latest| latest.id == id);
        if !is_latest || thread.is_deleted {
            self.clear_server_resumes(&thread, id).await?;
            return Ok(None);
        }
        Ok(Some((run, thread)))
    }
}
