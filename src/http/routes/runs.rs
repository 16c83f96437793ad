//! Runs. A run lasts from a user message to the final response, holds included.

use crate::approvals::{DecideError, Decided, Decider, DecisionRequest, Scope};
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Owner},
};
use crate::http::approvals::validate::{check_reason, given_reason};
use crate::http::auth::Caller;
use crate::http::body::formats::{Hash, Id, Time};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::{JsonObject, Strict};
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use crate::http::routes::call::CallState;
use holdpoint_core::call::{State, ToolCall};
use holdpoint_core::decision::{Choice, Surface};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::run::{Run, RunStatus, TurnError, TurnErrorCode};
use holdpoint_store::Thread;
use poem_openapi::param::Path;
use poem_openapi::types::Example;
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Deserialize;

/// The work for one user message, from the message to the final answer, with all pauses for decisions.
#[derive(Debug, Object)]
#[oai(rename = "Run", skip_serializing_if_is_none)]
pub(in crate::http) struct RunView {
    /// The id of the run, as in the header `x-run-id` of its streams.
    run_id: Id,
    /// The thread of the message that the run answers.
    thread_id: Id,
    /// The root thread above `thread_id`, or that thread itself.
    session_id: Id,
    status: Word<RunStatus>,
    /// The ids of the pending calls.
    pending: Vec<Id>,
    error: Option<FailureView>,
    /// When the message arrived that the run answers.
    created_at: Time,
    /// When the run completed, failed or was cancelled.
    finished_at: Option<Time>,
}

/// Why a run failed. Only a failed run has it.
#[derive(Debug, Object)]
#[oai(rename = "RunFailure")]
pub(in crate::http) struct FailureView {
    code: Word<TurnErrorCode>,
    /// One sentence for people, without internal details.
    message: String,
}

impl FailureView {
    pub(in crate::http) fn of(error: &TurnError) -> Self {
        Self { code: error.code.into(), message: error.message.clone() }
    }
}

impl RunView {
    pub(in crate::http) fn of(run: &Run, thread: &Thread, pending: &[ToolCallId]) -> Self {
        Self {
            run_id: Id::of(run.id),
            thread_id: Id::of(run.thread_id),
            session_id: Id::of(thread.session_id),
            status: run.status.into(),
            pending: pending.iter().map(Id::of).collect(),
            error: run.error.as_ref().map(FailureView::of),
            created_at: run.created_at.into(),
            finished_at: run.finished_at.map(Time::from),
        }
    }
}

#[derive(ApiResponse)]
enum CancelRunResponse {
    /// The run is cancelled.
    #[oai(status = 200)]
    Done(Json<RunView>),
    /// The turn was asked to stop and is still running.
    #[oai(status = 202)]
    Accepted(Json<RunView>),
}

#[derive(ApiResponse)]
enum ResumeRunResponse {
    /// The turn of the run is running.
    #[oai(status = 202)]
    Accepted(Json<RunView>),
}

/// An approval of a held call of a run.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct ApproveRun {
    /// The held call: the `tool_call_id` of its approval.
    tool_call_id: Id,
    /// Inputs that replace the proposed ones; absent or null means as proposed.
    validated_inputs: Option<JsonObject>,
    /// A note, for the model and the record: at most 2000 characters.
    #[oai(validator(max_length = 2000))]
    reason: Option<String>,
    /// The `input_hash` of the call as shown. An outdated hash gets 409 `stale`.
    input_hash: Option<Hash>,
    /// The `preview_hash` of the preview of `validated_inputs`. Required with them if the tool has previews: without
    /// it, or with an outdated one, 409 `stale`.
    preview_hash: Option<Hash>,
}

impl Example for ApproveRun {
    fn example() -> Self {
        Self {
            tool_call_id: Id::example(),
            validated_inputs: None,
            reason: None,
            input_hash: None,
            preview_hash: None,
        }
    }
}

/// A rejection of a held call of a run.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct RejectRun {
    /// The held call: the `tool_call_id` of its approval.
    tool_call_id: Id,
    /// The reason, for the model and the record: at most 2000 characters.
    #[oai(validator(max_length = 2000))]
    reason: Option<String>,
}

impl Example for RejectRun {
    fn example() -> Self {
        Self { tool_call_id: Id::example(), reason: Some("not today".to_owned()) }
    }
}

/// The result of a decision about a call of a run.
#[derive(Debug, Object)]
#[oai(rename = "RunDecisionResult")]
struct RunDecisionView {
    /// Whether the call is decided.
    success: bool,
    /// The run in the path of the request.
    run_id: Id,
    /// The call in the body of the request.
    tool_call_id: Id,
    state: CallState,
}

impl RunDecisionView {
    fn of(call: &ToolCall) -> Self {
        Self {
            success: call.state != State::Pending,
            run_id: Id::of(call.run_id),
            tool_call_id: Id::of(call.id),
            state: (&call.state).into(),
        }
    }
}

#[derive(ApiResponse)]
enum RunDecisionResponse {
    /// The call is decided.
    #[oai(status = 200)]
    Decided(
        Json<RunDecisionView>,
        /// `true` if an earlier request made the same decision.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
    /// The approval is recorded, and more people must approve the call.
    #[oai(status = 202)]
    MoreNeeded(Json<RunDecisionView>, #[oai(header = "idempotent-replayed")] Option<String>),
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("getRun", &[Owner]),
    ("cancelRun", &[Owner]),
    ("resumeRun", &[Owner]),
    ("approveRun", &[Owner, Approver, Delegate]),
    ("rejectRun", &[Owner, Approver, Delegate]),
];

pub(in crate::http) struct Runs(pub(in crate::http) Api);

#[OpenApi]
impl Runs {
    /// Get a run
    ///
    /// Returns the status of the run and the calls that it waits for. Only the thread's user may see a run.
    #[oai(path = "/runs/:run_id", method = "get", operation_id = "getRun", tag = "Tag::Runs")]
    async fn get(
        &self,
        caller: Caller,
        /// The run, as `x-run-id` of its stream or an event names it.
        run_id: Path<Id>,
    ) -> Result<Json<RunView>, ApiError> {
        let id = run_id.0.parse().map_err(|_| ApiError::not_found())?;
        let read = self.0.store.read().await?;
        let (run, thread) = read.run(&caller.0, id).await?.ok_or_else(ApiError::not_found)?;
        let pending = read.pending_of(&thread, run.id).await?;
        Ok(Json(RunView::of(&run, &thread, &pending)))
    }

    /// Cancel a run
    ///
    /// Calls that have not started are cancelled. A running turn stops where it is, and its output so far is
    /// kept. Running tools are asked to stop, and their calls are settled.
    #[oai(path = "/runs/:run_id/cancel", method = "post", operation_id = "cancelRun", tag = "Tag::Runs")]
    async fn cancel(
        &self,
        caller: Caller,
        /// The run, as `x-run-id` of its stream or an event names it.
        run_id: Path<Id>,
    ) -> Result<CancelRunResponse, ApiError> {
        let id = run_id.0.parse().map_err(|_| ApiError::not_found())?;
        let (run, thread) = self.0.chat.cancel(&caller.0, id).await?;
        let pending = self.0.store.urgent_read().await?.pending_of(&thread, run.id).await?;
        let view = Json(RunView::of(&run, &thread, &pending));
        Ok(match run.status {
            RunStatus::Running => CancelRunResponse::Accepted(view),
            _ => CancelRunResponse::Done(view),
        })
    }

    /// Resume a run
    ///
    /// The turn continues without a page: the answer is in the messages, and a page may attach to its stream. For a run
    /// that waits with none of its calls open, and for a failed run. A run whose turn is running stays as it is.
    /// Only the thread's user can resume a run.
    #[oai(path = "/runs/:run_id/resume", method = "post", operation_id = "resumeRun", tag = "Tag::Runs")]
    async fn resume(
        &self,
        caller: Caller,
        /// The run, as `x-run-id` of its stream or an event names it.
        run_id: Path<Id>,
    ) -> Result<ResumeRunResponse, ApiError> {
        let id = run_id.0.parse().map_err(|_| ApiError::not_found())?;
        let (run, thread) = Box::pin(self.0.chat.resume_run(&caller.0, id)).await?;
        Ok(ResumeRunResponse::Accepted(Json(RunView::of(&run, &thread, &[]))))
    }

    /// Approve a held call of a run
    ///
    /// Follows the rules of `validate_tool`, but the response does not wait for the outcome, and the server
    /// resumes the run once none of its calls is open. Every caller that may decide the call may decide it
    /// here, also in a run of another user.
    #[oai(path = "/runs/:run_id/approve", method = "post", operation_id = "approveRun", tag = "Tag::Runs")]
    async fn approve(
        &self,
        caller: Caller,
        /// The run, as `x-run-id` of its stream or an event names it.
        run_id: Path<Id>,
        body: Strict<ApproveRun>,
    ) -> Result<RunDecisionResponse, ApiError> {
        let ApproveRun { tool_call_id, validated_inputs, reason, input_hash, preview_hash } = body.0;
        check_reason("", reason.as_deref())?;
        let inputs = validated_inputs.map(|inputs| inputs.0);
        let answer = Choice::Approve { inputs, note: given_reason(reason) };
        self.decide(&caller, &run_id.0, &tool_call_id, answer, [input_hash, preview_hash]).await
    }

    /// Reject a held call of a run
    ///
    /// The server resumes the run once none of its calls is open. The model then reads the reason.
    #[oai(path = "/runs/:run_id/reject", method = "post", operation_id = "rejectRun", tag = "Tag::Runs")]
    async fn reject(
        &self,
        caller: Caller,
        /// The run, as `x-run-id` of its stream or an event names it.
        run_id: Path<Id>,
        body: Strict<RejectRun>,
    ) -> Result<RunDecisionResponse, ApiError> {
        let RejectRun { tool_call_id, reason } = body.0;
        check_reason("", reason.as_deref())?;
        let answer = Choice::Reject { reason: given_reason(reason) };
        self.decide(&caller, &run_id.0, &tool_call_id, answer, [None, None]).await
    }
}

impl Runs {
    async fn decide(
        &self,
        caller: &Caller,
        run: &str,
        call: &str,
        answer: Choice,
        [input_hash, preview_hash]: [Option<Hash>; 2],
    ) -> Result<RunDecisionResponse, ApiError> {
        let (Ok(run), Ok(tool_call_id)) = (run.parse(), call.parse()) else {
            // An invalid id names no call. The attempt still counts against the rate limit, so that guessing
            // ids is limited.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let request = DecisionRequest {
            tool_call_id,
            choice: answer,
            input_hash: input_hash.map(String::from),
            preview_hash: preview_hash.map(String::from),
            link: None,
            surface: Surface::Rest,
            remember: None,
            scope: Scope::Run(run),
            server_resumes: true,
        };
        match self.0.approvals.decide(Decider::Person(&caller.0), request).await {
            Ok(Decided { call, replayed, .. }) => {
                let (view, replayed) =
                    (Json(RunDecisionView::of(&call)), replayed.then(|| "true".to_owned()));
                Ok(match call.state {
                    State::Pending => RunDecisionResponse::MoreNeeded(view, replayed),
                    _ => RunDecisionResponse::Decided(view, replayed),
                })
            }
            Err(DecideError::Closed(call)) if !self.waits(&call).await? => {
                Err(ApiError::run_not_waiting(&call))
            }
            Err(error) => Err(ApiError::not_decided_here(error)),
        }
    }

    /// Whether the run of a call waits for a decision.
    async fn waits(&self, call: &ToolCall) -> Result<bool, ApiError> {
        let status = self.0.store.urgent_read().await?.status_of(call.run_id).await?;
        Ok(status == Some(RunStatus::Waiting))
    }
}
