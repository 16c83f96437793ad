//! What is done in a session as a whole: a held call decided, everything stopped.

use super::Api;
use super::auth::Caller;
use super::body::Strict;
use super::error::ApiError;
use super::payload::{Json, Tag};
use super::runs::RunView;
use super::validate::{check_reason, given_reason};
use crate::approvals::{Decided, Decider, DecisionRequest, Scope};
use crate::domain::call::{State, ToolCall};
use crate::domain::decision::{Choice, Remember, Surface};
use crate::domain::run::RunStatus;
use poem_openapi::param::Path;
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;

/// What is said about a held call.
#[derive(Debug, Clone, Copy, Enum, Deserialize)]
#[oai(rename = "SessionDecision", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum ChoiceName {
    /// It runs.
    AllowOnce,
    /// It runs, and so do such calls of the session from now on.
    AllowSession,
    /// It does not run.
    Deny,
}

/// A decision about a held call of a session.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
struct DecideInSession {
    decision: ChoiceName,
    /// Why not, for the model and the record: at most 2000 characters. Ignored when allowing.
    #[oai(validator(max_length = 2000))]
    reason: Option<String>,
}

/// What became of a decision about a held call of a session.
#[derive(Debug, Object)]
#[oai(rename = "SessionDecisionResult")]
struct DecidedView {
    /// Whether it is decided so.
    success: bool,
    tool_call_id: String,
    /// As it was said.
    decision: ChoiceName,
    /// Of the call, as far as it came: nobody waits for its outcome here.
    state: String,
}

impl DecidedView {
    fn of(call: &ToolCall, decision: ChoiceName) -> Self {
        Self {
            success: call.state != State::Pending,
            tool_call_id: call.id.to_string(),
            decision,
            state: call.state.as_str().to_owned(),
        }
    }
}

#[derive(ApiResponse)]
enum SessionDecisionAnswer {
    /// Decided.
    #[oai(status = 200)]
    Decided(
        Json<DecidedView>,
        /// `true` where the same had been decided before.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
    /// Written down, and more people have to say yes.
    #[oai(status = 202)]
    MoreNeeded(Json<DecidedView>, #[oai(header = "idempotent-replayed")] Option<String>),
}

/// The runs of a session that were to stop.
#[derive(Debug, Object)]
#[oai(rename = "CancelSessionResult")]
struct CancelledView {
    /// As they stand now, those of the root thread first.
    results: Vec<RunView>,
}

#[derive(ApiResponse)]
enum CancelSessionAnswer {
    /// None of them goes on.
    #[oai(status = 200)]
    Done(Json<CancelledView>),
    /// A turn of them is asked to stop and has not yet.
    #[oai(status = 202)]
    UnderWay(Json<CancelledView>),
}

pub(super) struct SessionApprovals(pub(super) Api);

#[OpenApi]
impl SessionApprovals {
    /// Decide a held call of a session
    ///
    /// As `validate_tool` decides it, whichever thread of the session it is in; but nobody waits here for what comes of
    /// it, and when no call of its run is open any more the server goes on with that by itself.
    #[oai(
        path = "/sessions/:session_id/approvals/:tool_call_id",
        method = "post",
        operation_id = "decideInSession",
        tag = "Tag::ToolCalls"
    )]
    async fn decide(
        &self,
        caller: Caller,
        session_id: Path<String>,
        tool_call_id: Path<String>,
        body: Strict<DecideInSession>,
    ) -> Result<SessionDecisionAnswer, ApiError> {
        let DecideInSession { decision: said, reason } = body.0;
        check_reason("", reason.as_deref())?;
        let (Ok(session), Ok(tool_call_id)) = (session_id.0.parse(), tool_call_id.0.parse()) else {
            // What is no id names no call, and who tries them all is counted.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let answer = match said {
            ChoiceName::AllowOnce | ChoiceName::AllowSession => Choice::Approve { inputs: None },
            ChoiceName::Deny => Choice::Reject { reason: given_reason(reason) },
        };
        let request = DecisionRequest {
            tool_call_id,
            choice: answer,
            input_hash: None,
            surface: Surface::Rest,
            remember: matches!(said, ChoiceName::AllowSession).then_some(Remember::Session),
            scope: Scope::Session(session),
            server_resumes: true,
        };
        let decided = self.0.approvals.decide(Decider::Person(&caller.0), request).await;
        let Decided { call, replayed, .. } = decided.map_err(ApiError::not_decided_here)?;
        let (view, replayed) = (Json(DecidedView::of(&call, said)), replayed.then(|| "true".to_owned()));
        Ok(match call.state {
            State::Pending => SessionDecisionAnswer::MoreNeeded(view, replayed),
            _ => SessionDecisionAnswer::Decided(view, replayed),
        })
    }

    /// Cancel what goes on in a session
    ///
    /// Every run of its threads that is under way or waits for a person, each as `/runs/{id}/cancel` does.
    #[oai(
        path = "/sessions/:session_id/cancel",
        method = "post",
        operation_id = "cancelSession",
        tag = "Tag::Threads"
    )]
    async fn cancel(
        &self,
        caller: Caller,
        session_id: Path<String>,
    ) -> Result<CancelSessionAnswer, ApiError> {
        let id = session_id.0.parse().map_err(|_| ApiError::not_found())?;
        let cancelled = self.0.chat.cancel_session(&caller.0, id).await?;
        let read = self.0.store.urgent_read().await?;
        let mut results = Vec::with_capacity(cancelled.len());
        for (run, thread) in &cancelled {
            results.push(RunView::of(run, thread, &read.pending_of(thread, run.id).await?));
        }
        let view = Json(CancelledView { results });
        let under_way = cancelled.iter().any(|(run, _)| run.status == RunStatus::Running);
        Ok(if under_way { CancelSessionAnswer::UnderWay(view) } else { CancelSessionAnswer::Done(view) })
    }
}
