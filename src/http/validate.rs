//! Answering for a person: held calls decided, one or several.

use super::Api;
use super::auth::Caller;
use super::body::{JsonObject, Strict};
use super::error::{ApiError, ErrorDetail, Refusal};
use super::payload::{Json, Tag};
use crate::approvals::{Decided, DecisionRequest};
use crate::domain::call::{State, ToolCall, words};
use crate::domain::decision::{Answer, Surface};
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Deserialize;
use std::collections::HashSet;

/// Longest reason of a rejection, in characters.
pub(super) const REASON_MAX: usize = 2000;

/// A decision about a held call.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, rename_all = "camelCase")]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ValidateTool {
    /// The call.
    tool_call_id: String,
    /// Whether it may run.
    is_validated: bool,
    /// Inputs to run in place of the proposed ones; absent or null means as proposed. Ignored when rejecting.
    validated_inputs: Option<JsonObject>,
    /// Why not, for the model and the record: at most 2000 characters.
    #[oai(validator(max_length = 2000))]
    reason: Option<String>,
    /// The `input_hash` of what was shown: 409 `stale` if it is out of date.
    input_hash: Option<String>,
}

/// Decisions about several held calls.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields)]
#[serde(deny_unknown_fields)]
struct ValidateTools {
    /// Each about another call: at most 50, unless `limits.batch` says otherwise.
    #[oai(validator(min_items = 1, max_items = 50))]
    decisions: Vec<ValidateTool>,
}

/// What became of a decision.
#[derive(Debug, Object)]
#[oai(rename_all = "camelCase", skip_serializing_if_is_none)]
struct ValidateToolResult {
    /// Whether it was rejected as asked, or ran and gave a result.
    success: bool,
    /// What the model will read.
    result: String,
    tool_call_id: String,
    state: String,
    /// The inputs a person put in place of the model's.
    validated_inputs: Option<JsonObject>,
}

/// What became of one decision of several.
#[derive(Debug, Object)]
#[oai(rename_all = "camelCase", skip_serializing_if_is_none)]
struct DecisionResult {
    /// As it was asked for.
    tool_call_id: String,
    /// What `validate_tool` would have answered: with 200 and 202 its other fields follow, with any other `error`.
    status: u16,
    /// Whether it was rejected as asked, or ran and gave a result.
    success: Option<bool>,
    /// What the model will read.
    result: Option<String>,
    state: Option<String>,
    /// The inputs a person put in place of the model's.
    validated_inputs: Option<JsonObject>,
    /// True where the same had been decided before; the tool did not run again.
    idempotent_replayed: Option<bool>,
    /// Why it was not decided.
    error: Option<Box<ErrorDetail>>,
    /// In so many seconds it may go.
    retry_after: Option<u64>,
}

/// What became of several decisions.
#[derive(Debug, Object)]
struct ValidateToolsResult {
    /// In the order of the request.
    results: Vec<DecisionResult>,
}

#[derive(ApiResponse)]
enum ValidateAnswer {
    /// Decided, and at its end.
    #[oai(status = 200)]
    Done(
        Json<ValidateToolResult>,
        /// `true` where the same had been decided before; the tool did not run again.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
    /// Decided, and still under way: ask again to wait again.
    #[oai(status = 202)]
    UnderWay(Json<ValidateToolResult>, #[oai(header = "idempotent-replayed")] Option<String>),
}

pub(super) struct Validate(pub(super) Api);

#[OpenApi(tag = "Tag::Chat")]
impl Validate {
    /// Decide a held call
    ///
    /// Approved, the tool runs now, once, and the answer is its outcome. The same decision again gives the
    /// stored outcome; another one is refused. The thread's user decides, and who has one of the roles that approve
    /// the tool's calls. Where the tool wants another person, or may not run on behalf of the thread's user, that user
    /// may only reject.
    #[oai(path = "/qa/validate_tool", method = "post", operation_id = "validateTool")]
    async fn validate_tool(
        &self,
        caller: Caller,
        body: Strict<ValidateTool>,
    ) -> Result<ValidateAnswer, ApiError> {
        body.0.check("")?;
        let mut decided = self.decide(&caller, body.0).await?;
        self.0.approvals.follow(&caller.0, &mut [&mut decided]).await?;
        let Decided { call, replayed } = decided;
        let replayed = replayed.then(|| "true".to_owned());
        Ok(match call.end() {
            Some(_) => ValidateAnswer::Done(Json(ValidateToolResult::of(&call)), replayed),
            None => ValidateAnswer::UnderWay(Json(ValidateToolResult::of(&call)), replayed),
        })
    }

    /// Decide several held calls
    ///
    /// Each by itself, as `validate_tool` decides it: one that is refused changes nothing for the others. The answer
    /// says of each, in the order of the request, what `validate_tool` would have answered. All that were approved run
    /// side by side, and all are waited for at once. A request that cannot be read, or names a call twice, decides
    /// nothing.
    #[oai(path = "/qa/validate_tools", method = "post", operation_id = "validateTools")]
    async fn validate_tools(
        &self,
        caller: Caller,
        body: Strict<ValidateTools>,
    ) -> Result<Json<ValidateToolsResult>, ApiError> {
        let decisions = body.0.decisions;
        self.check_all(&decisions)?;
        let ids: Vec<String> = decisions.iter().map(|decision| decision.tool_call_id.clone()).collect();
        let mut outcomes: Vec<Result<Decided, Refusal>> = Vec::with_capacity(ids.len());
        // One after the other, each is soon written: the connections for what is urgent are few, and others decide as
        // well. A tool that takes its time keeps no call behind it from being decided.
        for decision in decisions {
            let unavailable =
                outcomes.last().and_then(|last| last.as_ref().err()).filter(|it| it.is_unavailable());
            outcomes.push(match unavailable.cloned() {
                // So would the next be, after as long a wait.
                Some(refusal) => Err(refusal),
                None => self.decide(&caller, decision).await.map_err(ApiError::refusal),
            });
        }
        let mut decided: Vec<&mut Decided> = outcomes.iter_mut().filter_map(|it| it.as_mut().ok()).collect();
        if let Err(error) = self.0.approvals.follow(&caller.0, &mut decided).await {
            let refusal = ApiError::from(error).refusal();
            for outcome in &mut outcomes {
                if outcome.as_ref().is_ok_and(|decided| decided.call.end().is_none()) {
                    *outcome = Err(refusal.clone());
                }
            }
        }
        let results = ids.into_iter().zip(outcomes).map(|(id, outcome)| DecisionResult::of(id, outcome));
        Ok(Json(ValidateToolsResult { results: results.collect() }))
    }
}

impl Validate {
    /// Takes one decision, and begins to run what it approves.
    async fn decide(&self, caller: &Caller, said: ValidateTool) -> Result<Decided, ApiError> {
        let Ok(tool_call_id) = said.tool_call_id.parse() else {
            // What is no id names no call, and who tries them all is counted.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let answer = if said.is_validated {
            Answer::Approve { inputs: said.validated_inputs.map(|inputs| inputs.0) }
        } else {
            Answer::Reject { reason: said.reason.filter(|reason| !reason.trim().is_empty()) }
        };
        let decision =
            DecisionRequest { tool_call_id, answer, input_hash: said.input_hash, surface: Surface::Rest };
        Ok(self.0.approvals.answer(&caller.0, decision).await?)
    }

    fn check_all(&self, decisions: &[ValidateTool]) -> Result<(), ApiError> {
        let max = self.0.decisions_max;
        if decisions.is_empty() || decisions.len() > max {
            return Err(ApiError::bad_request(format!("decisions: expected 1 to {max}")));
        }
        let mut named = HashSet::new();
        for (n, decision) in decisions.iter().enumerate() {
            decision.check(&format!("decisions[{n}]."))?;
            if !named.insert(decision.tool_call_id.as_str()) {
                let message = format!("decisions[{n}].toolCallId: expected another call than those before");
                return Err(ApiError::bad_request(message));
            }
        }
        Ok(())
    }
}

impl ValidateTool {
    /// Whether it can be taken at all; `place` is where it stands in the body.
    fn check(&self, place: &str) -> Result<(), ApiError> {
        if self.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_MAX) {
            let message = format!("{place}reason: expected at most {REASON_MAX} characters");
            return Err(ApiError::bad_request(message));
        }
        Ok(())
    }
}

impl ValidateToolResult {
    fn of(call: &ToolCall) -> Self {
        let result = call.end().map_or(words::UNDER_WAY, |end| end.result.as_str());
        let state = match &call.state {
            // Who waits for the outcome need not tell a yes from its beginning.
            State::Approved(_) | State::Executing(..) => "executing",
            other => other.as_str(),
        };
        Self {
            success: matches!(call.state, State::Succeeded(..) | State::Rejected(_)),
            result: result.to_owned(),
            tool_call_id: call.id.to_string(),
            state: state.to_owned(),
            validated_inputs: call.edited_input().cloned().map(JsonObject),
        }
    }
}

impl DecisionResult {
    fn of(tool_call_id: String, outcome: Result<Decided, Refusal>) -> Self {
        match outcome {
            Ok(Decided { call, replayed }) => {
                let status = if call.end().is_some() { 200 } else { 202 };
                let ValidateToolResult { success, result, tool_call_id, state, validated_inputs } =
                    ValidateToolResult::of(&call);
                Self {
                    tool_call_id,
                    status,
                    success: Some(success),
                    result: Some(result),
                    state: Some(state),
                    validated_inputs,
                    idempotent_replayed: replayed.then_some(true),
                    error: None,
                    retry_after: None,
                }
            }
            Err(Refusal { status, error, retry_after }) => Self {
                tool_call_id,
                status,
                success: None,
                result: None,
                state: None,
                validated_inputs: None,
                idempotent_replayed: None,
                error: Some(error),
                retry_after,
            },
        }
    }
}
