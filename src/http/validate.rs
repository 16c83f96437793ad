//! Answering for a person: held calls decided, one or several.

use super::Api;
use super::auth::Caller;
use super::body::{JsonObject, Strict};
use super::error::{ApiError, ErrorDetail, Refusal};
use super::payload::{Json, Tag};
use crate::approvals::{Decided, Decider, DecisionRequest, Scope};
use crate::domain::call::{State, model_texts};
use crate::domain::decision::{Choice, Remember, Surface};
use poem_openapi::types::ToJSON;
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;

/// Longest reason of a rejection, in characters.
pub(super) const REASON_MAX: usize = 2000;

/// How far a yes reaches beyond its call.
#[derive(Debug, Clone, Copy, Enum, Deserialize)]
#[oai(rename = "Remember", rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub(super) enum RememberName {
    /// To calls of the same tool, as long as its schema stays, in the same session: nobody is asked about them.
    Session,
}

/// A decision about a held call.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, rename_all = "camelCase")]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ValidateTool {
    /// The call.
    pub(super) tool_call_id: String,
    /// Whether it may run.
    pub(super) is_validated: bool,
    /// Inputs to run in place of the proposed ones; absent or null means as proposed. Ignored when rejecting.
    pub(super) validated_inputs: Option<JsonObject>,
    /// Why not, for the model and the record: at most 2000 characters.
    #[oai(validator(max_length = 2000))]
    pub(super) reason: Option<String>,
    /// The `input_hash` of what was shown: 409 `stale` if it is out of date.
    pub(super) input_hash: Option<String>,
    /// With a yes: whether it is for later calls of the tool in the session too, and for those that wait now.
    pub(super) remember: Option<RememberName>,
    /// Whether the server goes on with the run once no call of it is open: false if absent, and the next turn of the
    /// thread does. What is said last about the run's calls counts.
    pub(super) resume: Option<bool>,
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
    /// Decided, and still under way: ask again to wait again. Or, with the state `pending`: more people have to approve.
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
    /// may only reject. Where it wants several people, it runs once as many have approved the same inputs; one rejection
    /// is final. A call that was approved and then cancelled before the tool began is answered 200 too, with `success`
    /// false and the `state` `cancelled`.
    #[oai(path = "/qa/validate_tool", method = "post", operation_id = "validateTool")]
    async fn validate_tool(
        &self,
        caller: Caller,
        body: Strict<ValidateTool>,
    ) -> Result<ValidateAnswer, ApiError> {
        let decided = decide_and_follow(&self.0, &caller, body.0, Surface::Rest).await?;
        let replayed = decided.replayed.then(|| "true".to_owned());
        let result = Json(ValidateToolResult::of(&decided));
        Ok(match decided.call.end() {
            Some(_) => ValidateAnswer::Done(result, replayed),
            None => ValidateAnswer::UnderWay(result, replayed),
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
                None => take(&self.0, &caller, decision, Surface::Rest).await.map_err(ApiError::refusal),
            });
        }
        let mut decided: Vec<&mut Decided> = outcomes.iter_mut().filter_map(|it| it.as_mut().ok()).collect();
        if let Err(error) = self.0.approvals.await_outcomes(&caller.0, &mut decided).await {
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

/// Decides as `validate_tool` does: the status and the body of its answer.
pub(super) async fn decide(
    api: &Api,
    caller: &Caller,
    said: ValidateTool,
    surface: Surface,
) -> Result<(u16, Option<Value>), ApiError> {
    let decided = decide_and_follow(api, caller, said, surface).await?;
    Ok((status(&decided), ValidateToolResult::of(&decided).to_json()))
}

async fn decide_and_follow(
    api: &Api,
    caller: &Caller,
    said: ValidateTool,
    surface: Surface,
) -> Result<Decided, ApiError> {
    said.check("")?;
    let mut decided = take(api, caller, said, surface).await?;
    api.approvals.await_outcomes(&caller.0, &mut [&mut decided]).await?;
    Ok(decided)
}

/// Takes one decision, and begins to run what it approves.
async fn take(api: &Api, caller: &Caller, said: ValidateTool, surface: Surface) -> Result<Decided, ApiError> {
    let Ok(tool_call_id) = said.tool_call_id.parse() else {
        // What is no id names no call, and who tries them all is counted.
        api.approvals.count(&caller.0)?;
        return Err(ApiError::not_found());
    };
    let answer = if said.is_validated {
        Choice::Approve { inputs: said.validated_inputs.map(|inputs| inputs.0) }
    } else {
        Choice::Reject { reason: given_reason(said.reason) }
    };
    let decision = DecisionRequest {
        tool_call_id,
        choice: answer,
        input_hash: said.input_hash,
        surface,
        remember: said.remember.map(|RememberName::Session| Remember::Session),
        scope: Scope::Anything,
        server_resumes: said.resume.unwrap_or(false),
    };
    Ok(api.approvals.decide(Decider::Person(&caller.0), decision).await?)
}

fn status(decided: &Decided) -> u16 {
    if decided.call.end().is_some() { 200 } else { 202 }
}

impl Validate {
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
        check_reason(place, self.reason.as_deref())
    }
}

/// Whether a reason can be taken; `place` is where it stands in the body.
pub(super) fn check_reason(place: &str, reason: Option<&str>) -> Result<(), ApiError> {
    if reason.is_some_and(|reason| reason.chars().count() > REASON_MAX) {
        let message = format!("{place}reason: expected at most {REASON_MAX} characters");
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

/// A reason that says something.
pub(super) fn given_reason(reason: Option<String>) -> Option<String> {
    reason.filter(|reason| !reason.trim().is_empty())
}

impl ValidateToolResult {
    fn of(Decided { call, missing, .. }: &Decided) -> Self {
        let result = match (call.end(), missing) {
            (Some(end), _) => end.result.clone(),
            (None, 0) => model_texts::UNDER_WAY.to_owned(),
            (None, 1) => "Approved. One more person has to approve it before it runs.".to_owned(),
            (None, more) => format!("Approved. {more} more people have to approve it before it runs."),
        };
        let state = match &call.state {
            // Who waits for the outcome need not tell a yes from its beginning.
            State::Approved(_) | State::Executing(..) => "executing",
            other => other.as_str(),
        };
        Self {
            success: matches!(call.state, State::Succeeded(..) | State::Rejected(_)),
            result,
            tool_call_id: call.id.to_string(),
            state: state.to_owned(),
            validated_inputs: call.edited_input().cloned().map(JsonObject),
        }
    }
}

impl DecisionResult {
    fn of(tool_call_id: String, outcome: Result<Decided, Refusal>) -> Self {
        match outcome {
            Ok(decided) => {
                let status = status(&decided);
                let ValidateToolResult { success, result, tool_call_id, state, validated_inputs } =
                    ValidateToolResult::of(&decided);
                Self {
                    tool_call_id,
                    status,
                    success: Some(success),
                    result: Some(result),
                    state: Some(state),
                    validated_inputs,
                    idempotent_replayed: decided.replayed.then_some(true),
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
