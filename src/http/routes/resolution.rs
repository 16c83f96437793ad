//! The route with which an operator establishes the outcome of an interrupted call.

use crate::http::Api;
use crate::http::access::{Access, CallerKind::OperatorOrOneUser};
use crate::http::approvals::validate::{REASON_MAX, check_reason, given_reason};
use crate::http::auth::Caller;
use crate::http::body::formats::Id;
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::Strict;
use crate::http::failure::error::ApiError;
use crate::http::routes::call::CallState;
use holdpoint_core::call::Outcome;
use poem_openapi::param::Path;
use poem_openapi::types::{Any, Example};
use poem_openapi::{Enum, Object, OpenApi};
use serde::Deserialize;
use serde_json::{Value, json};

/// What an operator found out. `succeeded`: the effect happened. `failed`: it did not, or not as intended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum EstablishedOutcome {
    /// The effect happened.
    Succeeded,
    /// The effect did not happen, or not as intended.
    Failed,
}

/// The outcome of an interrupted call, as an operator found it out.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct ResolveCall {
    outcome: EstablishedOutcome,
    /// With `succeeded`: the output, any JSON. Absent is null, if the output is unknown.
    result: Option<Any<Value>>,
    /// With `failed`: what happened, for the model and the user. At most 2000 characters, and not blank.
    #[oai(validator(max_length = 2000))]
    error: Option<String>,
    /// How the operator knows, for the model and the record. At most 2000 characters.
    #[oai(validator(max_length = 2000))]
    reason: Option<String>,
}

impl Example for ResolveCall {
    fn example() -> Self {
        Self {
            outcome: EstablishedOutcome::Succeeded,
            result: Some(Any(json!({ "refunded": true }))),
            error: None,
            reason: Some("It is on the statement.".to_owned()),
        }
    }
}

impl ResolveCall {
    fn checked(self, api: &Api) -> Result<(Outcome, Option<String>), ApiError> {
        let Self { outcome, result, error, reason } = self;
        check_reason("", reason.as_deref())?;
        let outcome = match (outcome, result, error) {
            (EstablishedOutcome::Succeeded, result, None) => {
                api.approvals.gate().succeeded(result.map(|it| it.0).unwrap_or_default())
            }
            (EstablishedOutcome::Succeeded, _, Some(_)) => {
                return Err(ApiError::bad_request("error: expected only with the outcome failed"));
            }
            (EstablishedOutcome::Failed, None, Some(error)) if is_text(&error) => Outcome::Failed(error),
            (EstablishedOutcome::Failed, None, _) => {
                let message = format!("error: expected what happened, in 1 to {REASON_MAX} characters");
                return Err(ApiError::bad_request(message));
            }
            (EstablishedOutcome::Failed, Some(_), _) => {
                return Err(ApiError::bad_request("result: expected only with the outcome succeeded"));
            }
        };
        Ok((outcome, given_reason(reason)))
    }
}

fn is_text(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= REASON_MAX
}

/// The result of a resolution: the state of the call now.
#[derive(Debug, Object)]
struct ResolveResult {
    /// The call in the path of the request.
    tool_call_id: Id,
    state: CallState,
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("resolveToolCall", &[OperatorOrOneUser])];

pub(in crate::http) struct Resolutions(pub(in crate::http) Api);

#[OpenApi]
impl Resolutions {
    /// Resolve an interrupted call
    ///
    /// Records the outcome of a call that is `interrupted`, as an operator found it out. The tool does not run. The model
    /// reads that an operator established the outcome. Only operators may resolve a call; on a server without
    /// authentication the one user may. The first outcome counts, that of a late tool included: afterwards the answer
    /// is 409 `not_interrupted` with the state of the call. Counts as a decision for the rate limit.
    #[oai(
        path = "/tool_calls/:tool_call_id/resolve",
        method = "post",
        operation_id = "resolveToolCall",
        tag = "Tag::ToolCalls"
    )]
    async fn resolve(
        &self,
        caller: Caller,
        /// The interrupted call.
        tool_call_id: Path<Id>,
        body: Strict<ResolveCall>,
    ) -> Result<Json<ResolveResult>, ApiError> {
        let (outcome, reason) = body.0.checked(&self.0)?;
        let Ok(id) = tool_call_id.0.parse() else {
            // An invalid id names no call. The attempt still counts, as for a decision.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let state = self.0.approvals.resolve(&caller.0, id, outcome, reason.as_deref()).await?;
        Ok(Json(ResolveResult { tool_call_id: Id::of(id), state: state.into() }))
    }
}
