//! Actions on a whole session or thread: decide a held call, cancel every run.

use crate::approvals::{Decided, Decider, DecisionRequest, Scope};
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Owner},
};
use crate::http::approvals::remember::{RememberBody, RememberedView};
use crate::http::approvals::validate::{check_reason, given_reason};
use crate::http::auth::Caller;
use crate::http::body::formats::{Hash, Id};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::Strict;
use crate::http::body::thread_ref::ThreadRef;
use crate::http::failure::error::ApiError;
use crate::http::failure::error_code::ErrorCode;
use crate::http::routes::call::CallState;
use crate::http::routes::runs::RunView;
use holdpoint_core::call::State;
use holdpoint_core::decision::{Choice, Surface};
use holdpoint_core::grant::GrantRequest;
use holdpoint_core::run::{Run, RunStatus};
use holdpoint_store::Thread;
use poem_openapi::param::Path;
use poem_openapi::types::Example;
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;

/// The choice about a held call, as requested: once, for the session, or not at all.
#[derive(Debug, Clone, Copy, Enum, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum SessionDecision {
    /// The call runs.
    AllowOnce,
    /// The call runs, and so do later calls of this kind in the session.
    AllowSession,
    /// The call does not run.
    Deny,
}

/// A decision about a held call of a session.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct DecideInSession {
    decision: SessionDecision,
    /// The reason of a rejection, or a note with an approval, for the model and the record: at most 2000 characters.
    #[oai(validator(max_length = 2000))]
    reason: Option<String>,
    /// The `input_hash` of the call as shown. An outdated hash gets 409 `stale`. Required to allow a call whose tool has
    /// changed since.
    input_hash: Option<Hash>,
    /// With `allow_session`: what the approval covers beyond the call, in facts, as in `validate_tool`. Absent: all later
    /// calls of the tool in the session, and the calls that wait now.
    remember: Option<RememberBody>,
}

impl Example for DecideInSession {
    fn example() -> Self {
        Self { decision: SessionDecision::AllowOnce, reason: None, input_hash: None, remember: None }
    }
}

/// The result of a decision about a held call of a session.
#[derive(Debug, Object)]
#[oai(rename = "SessionDecisionResult", skip_serializing_if_is_none)]
struct DecidedView {
    /// Whether the call is decided.
    success: bool,
    /// The call in the path of the request.
    tool_call_id: Id,
    decision: SessionDecision,
    state: CallState,
    remembered: Option<RememberedView>,
}

impl DecidedView {
    fn of(decided: &Decided, decision: SessionDecision) -> Self {
        let Decided { call, remembered, .. } = decided;
        Self {
            success: call.state != State::Pending,
            tool_call_id: Id::of(call.id),
            decision,
            state: (&call.state).into(),
            remembered: remembered.as_ref().map(RememberedView::of),
        }
    }
}

#[derive(ApiResponse)]
enum SessionDecisionResponse {
    /// The call is decided.
    #[oai(status = 200)]
    Decided(
        Json<DecidedView>,
        /// `true` if an earlier request made the same decision.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
    /// The approval is recorded, and more people must approve the call.
    #[oai(status = 202)]
    MoreNeeded(Json<DecidedView>, #[oai(header = "idempotent-replayed")] Option<String>),
}

/// The runs of a session or a thread that the request cancels.
#[derive(Debug, Object)]
#[oai(rename = "CancelSessionResult")]
struct CancelledView {
    /// The current state of the runs. Runs of the root thread come first.
    results: Vec<RunView>,
}

#[derive(ApiResponse)]
enum CancelSessionResponse {
    /// None of the runs is running any more.
    #[oai(status = 200)]
    Done(Json<CancelledView>),
    /// At least one turn was asked to stop and is still running.
    #[oai(status = 202)]
    Accepted(Json<CancelledView>),
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("decideInSession", &[Owner, Approver, Delegate]),
    ("cancelSession", &[Owner]),
    ("cancelThread", &[Owner]),
];

pub(in crate::http) struct SessionApprovals(pub(in crate::http) Api);

#[OpenApi]
impl SessionApprovals {
    /// Decide a held call of a session
    ///
    /// Follows the rules of `validate_tool`, for a call in any thread of the session. The response does not
    /// wait for the outcome, and the server resumes the run once none of its calls is open.
    #[oai(
        path = "/sessions/:session_id/approvals/:tool_call_id",
        method = "post",
        operation_id = "decideInSession",
        tag = "Tag::ToolCalls"
    )]
    async fn decide(
        &self,
        caller: Caller,
        /// The id of the session, or the caller's own name for its root thread.
        session_id: Path<ThreadRef>,
        /// The `tool_call_id` of the held call.
        tool_call_id: Path<Id>,
        body: Strict<DecideInSession>,
    ) -> Result<SessionDecisionResponse, ApiError> {
        let DecideInSession { decision: decision_name, reason, input_hash, remember } = body.0;
        check_reason("", reason.as_deref())?;
        let remember = remember.as_ref().map(RememberBody::request).transpose()?;
        let remember = match (decision_name, remember) {
            (SessionDecision::AllowSession, remember) => Some(remember.unwrap_or(GrantRequest::Session)),
            (_, None) => None,
            (_, Some(_)) => {
                let message = "remember: expected it with the decision allow_session".to_owned();
                return Err(ApiError::unprocessable(ErrorCode::NotRemembered, message));
            }
        };
        let remember = &remember;
        let Ok(tool_call_id) = tool_call_id.0.parse() else {
            // An invalid id names no call. The attempt still counts against the rate limit, so that guessing
            // ids is limited.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let choice = &match decision_name {
            SessionDecision::AllowOnce | SessionDecision::AllowSession => {
                Choice::Approve { inputs: None, note: given_reason(reason) }
            }
            SessionDecision::Deny => Choice::Reject { reason: given_reason(reason) },
        };
        let decide = async |session| {
            let request = DecisionRequest {
                tool_call_id,
                choice: choice.clone(),
                input_hash: input_hash.clone().map(String::from),
                preview_hash: None,
                link: None,
                surface: Surface::Rest,
                remember: remember.clone(),
                scope: Scope::Session(session),
                server_resumes: true,
            };
            let decided = self.0.approvals.decide(Decider::Person(&caller.0), request).await;
            decided.map_err(ApiError::not_decided_here)
        };
        let decided = self.0.with_thread(&caller, &session_id, decide).await?;
        let view = Json(DecidedView::of(&decided, decision_name));
        let replayed = decided.replayed.then(|| "true".to_owned());
        Ok(match decided.call.state {
            State::Pending => SessionDecisionResponse::MoreNeeded(view, replayed),
            _ => SessionDecisionResponse::Decided(view, replayed),
        })
    }

    /// Cancel every run of a session
    ///
    /// Cancels the runs of all threads of the session that are running or waiting, or that failed with
    /// pending calls. Each run is cancelled as by `/runs/{id}/cancel`.
    #[oai(
        path = "/sessions/:session_id/cancel",
        method = "post",
        operation_id = "cancelSession",
        tag = "Tag::Threads"
    )]
    async fn cancel_session(
        &self,
        caller: Caller,
        /// The id of the session, or the caller's own name for its root thread.
        session_id: Path<ThreadRef>,
    ) -> Result<CancelSessionResponse, ApiError> {
        let cancel = async |id| Ok(self.0.chat.cancel_session(&caller.0, id).await?);
        self.cancelled(self.0.with_thread(&caller, &session_id, cancel).await?).await
    }

    /// Stop whatever runs or waits in a thread
    ///
    /// For the Stop button of a page: needs neither the id of a run nor that one is active. Cancels the runs
    /// of the thread that are running or waiting, or that failed with pending calls, each as by
    /// `/runs/{id}/cancel`. Other threads of the session continue, except those of sub-agents that work for
    /// these runs. The list is empty if nothing runs or waits.
    #[oai(
        path = "/threads/:thread_id/cancel",
        method = "post",
        operation_id = "cancelThread",
        tag = "Tag::Threads"
    )]
    async fn cancel_thread(
        &self,
        caller: Caller,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
    ) -> Result<CancelSessionResponse, ApiError> {
        let cancel = async |id| Ok(self.0.chat.cancel_thread(&caller.0, id).await?);
        self.cancelled(self.0.with_thread(&caller, &thread_id, cancel).await?).await
    }
}

impl SessionApprovals {
    /// Returns the response with the current state of these runs.
    async fn cancelled(&self, cancelled: Vec<(Run, Thread)>) -> Result<CancelSessionResponse, ApiError> {
        let read = self.0.store.urgent_read().await?;
        let mut results = Vec::with_capacity(cancelled.len());
        for (run, thread) in &cancelled {
            results.push(RunView::of(run, thread, &read.pending_of(thread, run.id).await?));
        }
        let view = Json(CancelledView { results });
        let is_accepted = cancelled.iter().any(|(run, _)| run.status == RunStatus::Running);
        Ok(if is_accepted {
            CancelSessionResponse::Accepted(view)
        } else {
            CancelSessionResponse::Done(view)
        })
    }
}
