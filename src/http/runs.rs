//! Runs: from a user message to the final answer, pauses included.

use super::Api;
use super::auth::Caller;
use super::error::ApiError;
use super::payload::{Json, Tag};
use crate::domain::id::ToolCallId;
use crate::domain::run::{Run, RunStatus, TurnError};
use crate::store::Thread;
use poem_openapi::param::Path;
use poem_openapi::{ApiResponse, Object, OpenApi};

/// A run.
#[derive(Debug, Object)]
#[oai(rename = "Run", skip_serializing_if_is_none)]
struct RunView {
    run_id: String,
    thread_id: String,
    session_id: String,
    /// running, waiting, completed, failed or cancelled.
    status: String,
    /// The calls that wait for a person.
    pending: Vec<String>,
    /// Why it failed.
    error: Option<RunErrorView>,
    created_at: String,
    finished_at: Option<String>,
}

/// Why a run failed.
#[derive(Debug, Object)]
#[oai(rename = "RunError")]
struct RunErrorView {
    /// upstream_timeout, upstream_error, upstream_malformed, interrupted, step_limit or internal.
    code: String,
    message: String,
}

impl RunErrorView {
    fn of(error: &TurnError) -> Self {
        Self { code: error.code.as_str().to_owned(), message: error.message.clone() }
    }
}

impl RunView {
    fn of(run: &Run, thread: &Thread, pending: &[ToolCallId]) -> Self {
        Self {
            run_id: run.id.to_string(),
            thread_id: run.thread_id.to_string(),
            session_id: thread.session_id.to_string(),
            status: run.status.as_str().to_owned(),
            pending: pending.iter().map(ToString::to_string).collect(),
            error: run.error.as_ref().map(RunErrorView::of),
            created_at: run.created_at.to_rfc3339(),
            finished_at: run.finished_at.map(|at| at.to_rfc3339()),
        }
    }
}

#[derive(ApiResponse)]
enum CancelRunAnswer {
    /// It is cancelled.
    #[oai(status = 200)]
    Done(Json<RunView>),
    /// Its turn is asked to stop and has not yet.
    #[oai(status = 202)]
    UnderWay(Json<RunView>),
}

pub(super) struct Runs(pub(super) Api);

#[OpenApi]
impl Runs {
    /// One run and how it stands
    #[oai(path = "/runs/:run_id", method = "get", operation_id = "getRun", tag = "Tag::Runs")]
    async fn get(&self, caller: Caller, run_id: Path<String>) -> Result<Json<RunView>, ApiError> {
        let id = run_id.0.parse().map_err(|_| ApiError::not_found())?;
        let read = self.0.store.read().await?;
        let (run, thread) = read.run(&caller.0, id).await?.ok_or_else(ApiError::not_found)?;
        let pending = read.pending_of(&thread, run.id).await?;
        Ok(Json(RunView::of(&run, &thread, &pending)))
    }

    /// Cancel a run
    ///
    /// Its calls that nobody has begun are cancelled; a turn under way stops where it is, and what it said stays.
    /// Tools that run already settle.
    #[oai(path = "/runs/:run_id/cancel", method = "post", operation_id = "cancelRun", tag = "Tag::Runs")]
    async fn cancel(&self, caller: Caller, run_id: Path<String>) -> Result<CancelRunAnswer, ApiError> {
        let id = run_id.0.parse().map_err(|_| ApiError::not_found())?;
        let (run, thread) = self.0.chat.cancel(&caller.0, id).await?;
        let pending = self.0.store.urgent_read().await?.pending_of(&thread, run.id).await?;
        let view = Json(RunView::of(&run, &thread, &pending));
        Ok(match run.status {
            RunStatus::Running => CancelRunAnswer::UnderWay(view),
            _ => CancelRunAnswer::Done(view),
        })
    }
}
