//! The routes that decide held calls, one or several.

use crate::approvals::{Decided, Decider, DecisionRequest, Scope};
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Owner},
};
use crate::http::approvals::remember::{RememberBody, RememberedView};
use crate::http::auth::Caller;
use crate::http::body::described::{described, inline};
use crate::http::body::formats::Id;
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::{JsonObject, Strict};
use crate::http::failure::error::{ApiError, ErrorDetail, Refusal};
use crate::http::routes::call::CallState;
use holdpoint_core::call::{State, StateKind};
use holdpoint_core::decision::{Choice, Surface};
use holdpoint_core::link::LinkToken;
use holdpoint_core::text::model_texts;
use poem_openapi::registry::MetaSchema;
use poem_openapi::types::{Example, ParseError, ToJSON};
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;

/// Maximum length of the reason of a decision, in characters.
pub(in crate::http) use holdpoint_core::decision::REASON_MAX;

/// A decision about a held call.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, rename_all = "camelCase", skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::http) struct ValidateTool {
    /// The held call: the `tool_call_id` of its approval.
    pub(in crate::http) tool_call_id: Id,
    /// True approves the call, false rejects it.
    pub(in crate::http) is_validated: bool,
    /// Inputs that replace the proposed ones; absent or null means as proposed. Ignored for a rejection.
    pub(in crate::http) validated_inputs: Option<JsonObject>,
    /// The reason of a rejection, or a note with an approval, for the model and the record: at most 2000 characters.
    #[oai(validator(max_length = 2000))]
    pub(in crate::http) reason: Option<String>,
    /// The `input_hash` of the call as shown. An outdated hash gets 409 `stale`.
    pub(in crate::http) input_hash: Option<String>,
    /// The `preview_hash` of the preview of `validatedInputs`. Required with them if the tool has previews: without
    /// it, or with an outdated one, 409 `stale`. Ignored for a rejection.
    pub(in crate::http) preview_hash: Option<String>,
    /// The token of the link of a message, from its address, if the caller came to the call by it. The decision uses
    /// the link up. It decides nothing with an unknown or expired link (404), with a link of another person (403), with
    /// a used one (409 `already_decided`), or if the call has changed since the message (409 `stale`).
    pub(in crate::http) link: Option<String>,
    /// With an approval: what it covers beyond the call. `"session"`: all later calls of the tool in the session, and the
    /// calls that wait now. An object says it in facts, and covers no waiting call that it does not name.
    pub(in crate::http) remember: Option<RememberBody>,
    /// Whether the server resumes the run once none of its calls is open. False if absent: then the next turn
    /// of the thread resumes the run. The last decision about the run's calls counts.
    pub(in crate::http) resume: Option<bool>,
}

impl Example for ValidateTool {
    fn example() -> Self {
        Self {
            tool_call_id: Id::example(),
            is_validated: true,
            validated_inputs: None,
            reason: None,
            input_hash: None,
            preview_hash: None,
            link: None,
            remember: None,
            resume: None,
        }
    }
}

/// Decisions about several held calls.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, example)]
#[serde(deny_unknown_fields)]
struct ValidateTools {
    /// Decisions about different calls: at most 50, unless `limits.batch` sets another limit.
    #[oai(validator(min_items = 1, max_items = 50))]
    decisions: Vec<ValidateTool>,
}

impl Example for ValidateTools {
    fn example() -> Self {
        let rejected = ValidateTool {
            tool_call_id: Id::another_example(),
            is_validated: false,
            reason: Some("not today".to_owned()),
            ..ValidateTool::example()
        };
        Self { decisions: vec![ValidateTool::example(), rejected] }
    }
}

/// The result of a decision.
#[derive(Debug, Object)]
#[oai(rename_all = "camelCase", skip_serializing_if_is_none)]
struct ValidateToolResult {
    /// Whether the call was rejected as requested, or ran and succeeded.
    success: bool,
    /// The text that the model will read.
    result: String,
    /// The call in the body of the request.
    tool_call_id: Id,
    state: CallState,
    /// The inputs that replaced the proposed ones in the approval.
    validated_inputs: Option<JsonObject>,
    /// Whether the next request to the thread resumes the run, as that of its page. If false, the server resumes
    /// the run once none of its calls is open.
    waits_for_page: bool,
    remembered: Option<RememberedView>,
}

/// The result of one decision of several.
#[derive(Debug, Object)]
#[oai(rename_all = "camelCase", skip_serializing_if_is_none)]
struct DecisionResult {
    /// The id as requested.
    tool_call_id: String,
    /// The status that `validate_tool` would return. With 200 and 202 its other fields follow, with any other
    /// status `error`.
    status: ResultStatus,
    /// Whether the call was rejected as requested, or ran and succeeded.
    success: Option<bool>,
    /// The text that the model will read.
    result: Option<String>,
    state: Option<CallState>,
    /// The inputs that replaced the proposed ones in the approval.
    validated_inputs: Option<JsonObject>,
    /// True if an earlier request made the same decision. The tool did not run again.
    idempotent_replayed: Option<bool>,
    /// Whether the next request to the thread resumes the run, as that of its page. If false, the server resumes
    /// the run once none of its calls is open.
    waits_for_page: Option<bool>,
    remembered: Option<RememberedView>,
    error: Option<Box<ErrorDetail>>,
    /// Seconds until a retry may succeed.
    retry_after: Option<u64>,
}

/// A status that `validate_tool` returns for a well-formed decision.
#[derive(Debug, Clone, Copy)]
struct ResultStatus(u16);

described! {
    ResultStatus {
        name: u16::name(),
        schema: inline(MetaSchema {
            enum_items: [200, 202, 403, 404, 409, 422, 429, 500, 503].map(Value::from).to_vec(),
            ..MetaSchema::new_with_format("integer", "uint16")
        }),
        parse: |value| u16::parse_from_json(value).map(Self).map_err(ParseError::propagate),
        json: |status| status.0.to_json(),
    }
}

/// The results of several decisions.
#[derive(Debug, Object)]
struct ValidateToolsResult {
    /// In the order of the request.
    results: Vec<DecisionResult>,
}

#[derive(ApiResponse)]
enum ValidateResponse {
    /// The call is decided and has ended.
    #[oai(status = 200)]
    Done(
        Json<ValidateToolResult>,
        /// True if an earlier request made the same decision. The tool did not run again.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
    /// The call is decided and still running; the same request waits again. With the state `pending`: the
    /// approval is recorded, and more people must approve.
    #[oai(status = 202)]
    Accepted(Json<ValidateToolResult>, #[oai(header = "idempotent-replayed")] Option<String>),
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access =
    &[("validateTool", &[Owner, Approver, Delegate]), ("validateTools", &[Owner, Approver, Delegate])];

pub(in crate::http) struct Validate(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Chat")]
impl Validate {
    /// Decide a held call
    ///
    /// An approved call runs once, at once, and the response has its outcome. A repeat of the same decision
    /// returns the stored outcome; a different decision is refused. The thread's user may decide, and every
    /// caller with a role that approves the tool's calls. If the tool requires another person, or must not
    /// run on behalf of the thread's user, that user may only reject. If the tool requires several people,
    /// the call runs once that many have approved the same inputs; one rejection is final. A call that was
    /// approved and then cancelled before the tool started also gets 200, with `success` false and the
    /// `state` `cancelled`.
    #[oai(path = "/qa/validate_tool", method = "post", operation_id = "validateTool")]
    async fn validate_tool(
        &self,
        caller: Caller,
        body: Strict<ValidateTool>,
    ) -> Result<ValidateResponse, ApiError> {
        let decided = decide_and_await(&self.0, &caller, body.0, Surface::Rest).await?;
        let replayed = decided.replayed.then(|| "true".to_owned());
        let result = Json(ValidateToolResult::of(&decided));
        Ok(match decided.call.end() {
            Some(_) => ValidateResponse::Done(result, replayed),
            None => ValidateResponse::Accepted(result, replayed),
        })
    }

    /// Decide several held calls
    ///
    /// Each decision is independent, under the rules of `validate_tool`: a refused decision does not affect
    /// the others. The response lists, in the order of the request, what `validate_tool` would have returned
    /// for each. The approved calls run concurrently, and the response waits for all of them at once. A
    /// request that is malformed, or that names a call twice, decides nothing.
    #[oai(path = "/qa/validate_tools", method = "post", operation_id = "validateTools")]
    async fn validate_tools(
        &self,
        caller: Caller,
        body: Strict<ValidateTools>,
    ) -> Result<Json<ValidateToolsResult>, ApiError> {
        let decisions = body.0.decisions;
        self.check_all(&decisions)?;
        let ids: Vec<String> = decisions.iter().map(|decision| decision.tool_call_id.to_string()).collect();
        let mut outcomes: Vec<Result<Decided, Refusal>> = Vec::with_capacity(ids.len());
        // Decisions are committed one after the other. A commit is quick, and concurrent commits would take
        // the few urgent connections from other deciders. A slow tool does not delay the decisions after it.
        for decision in decisions {
            let unavailable =
                outcomes.last().and_then(|last| last.as_ref().err()).filter(|it| it.is_unavailable());
            outcomes.push(match unavailable.cloned() {
                // The next decision would be refused as well, after another wait.
                Some(refusal) => Err(refusal),
                None => commit_decision(&self.0, &caller, decision, Surface::Rest)
                    .await
                    .map_err(ApiError::refusal),
            });
        }
        let mut decided: Vec<&mut Decided> = outcomes.iter_mut().filter_map(|it| it.as_mut().ok()).collect();
        if let Err(error) = self.0.approvals.await_outcomes(&mut decided).await {
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

/// Decides a call as `validate_tool` does, and returns the status and the body of the response.
pub(in crate::http) async fn decide(
    api: &Api,
    caller: &Caller,
    posted: ValidateTool,
    surface: Surface,
) -> Result<(u16, Option<Value>), ApiError> {
    let decided = decide_and_await(api, caller, posted, surface).await?;
    Ok((status(&decided), ValidateToolResult::of(&decided).to_json()))
}

async fn decide_and_await(
    api: &Api,
    caller: &Caller,
    posted: ValidateTool,
    surface: Surface,
) -> Result<Decided, ApiError> {
    posted.check("")?;
    let mut decided = commit_decision(api, caller, posted, surface).await?;
    api.approvals.await_outcomes(&mut [&mut decided]).await?;
    Ok(decided)
}

/// Commits one decision, and starts the call if it is approved.
async fn commit_decision(
    api: &Api,
    caller: &Caller,
    posted: ValidateTool,
    surface: Surface,
) -> Result<Decided, ApiError> {
    let Ok(tool_call_id) = posted.tool_call_id.parse() else {
        // An invalid id names no call. The attempt still counts against the rate limit, so that guessing ids
        // is limited.
        api.approvals.count(&caller.0)?;
        return Err(ApiError::not_found());
    };
    let answer = if posted.is_validated {
        let inputs = posted.validated_inputs.map(|inputs| inputs.0);
        Choice::Approve { inputs, note: given_reason(posted.reason) }
    } else {
        Choice::Reject { reason: given_reason(posted.reason) }
    };
    let decision = DecisionRequest {
        tool_call_id,
        choice: answer,
        input_hash: posted.input_hash,
        preview_hash: posted.preview_hash,
        link: posted.link.map(LinkToken::new),
        surface,
        remember: posted.remember.as_ref().map(RememberBody::request).transpose()?,
        scope: Scope::Anything,
        server_resumes: posted.resume.unwrap_or(false),
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
            if !named.insert(&*decision.tool_call_id) {
                let message = format!("decisions[{n}].toolCallId: expected another call than those before");
                return Err(ApiError::bad_request(message));
            }
        }
        Ok(())
    }
}

impl ValidateTool {
    /// Checks a decision before it is committed. `prefix` is the place of the decision in the body.
    fn check(&self, prefix: &str) -> Result<(), ApiError> {
        check_reason(prefix, self.reason.as_deref())
    }
}

/// Checks the length of a reason. `prefix` is the place of the decision in the body.
pub(in crate::http) fn check_reason(prefix: &str, reason: Option<&str>) -> Result<(), ApiError> {
    if reason.is_some_and(|reason| reason.chars().count() > REASON_MAX) {
        let message = format!("{prefix}reason: expected at most {REASON_MAX} characters");
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

/// Returns the reason unless it is blank.
pub(in crate::http) fn given_reason(reason: Option<String>) -> Option<String> {
    reason.filter(|reason| !reason.trim().is_empty())
}

impl ValidateToolResult {
    fn of(Decided { call, server_resumes, missing, remembered, .. }: &Decided) -> Self {
        let result = match (call.text_for_model(), missing) {
            (Some(text), _) => text.into_owned(),
            (None, 0) => model_texts::IN_PROGRESS.to_owned(),
            (None, 1) => "Approved. One more person has to approve it before it runs.".to_owned(),
            (None, more) => format!("Approved. {more} more people have to approve it before it runs."),
        };
        let state = match &call.state {
            // A caller that waits for the outcome need not distinguish an approved call from a running one.
            State::Approved(_) | State::Executing(..) => StateKind::Executing.into(),
            other => other.into(),
        };
        Self {
            success: matches!(call.state, State::Succeeded(..) | State::Rejected(_)),
            result,
            tool_call_id: Id::of(call.id),
            state,
            validated_inputs: call.shown_edit().map(JsonObject::from),
            waits_for_page: !server_resumes,
            remembered: remembered.as_ref().map(RememberedView::of),
        }
    }
}

impl DecisionResult {
    fn of(tool_call_id: String, outcome: Result<Decided, Refusal>) -> Self {
        match outcome {
            Ok(decided) => {
                let status = status(&decided);
                let made = ValidateToolResult::of(&decided);
                let ValidateToolResult { success, result, tool_call_id, state, .. } = made;
                let ValidateToolResult { validated_inputs, waits_for_page, remembered, .. } = made;
                Self {
                    tool_call_id: tool_call_id.into(),
                    status: ResultStatus(status),
                    success: Some(success),
                    result: Some(result),
                    state: Some(state),
                    validated_inputs,
                    idempotent_replayed: decided.replayed.then_some(true),
                    waits_for_page: Some(waits_for_page),
                    remembered,
                    error: None,
                    retry_after: None,
                }
            }
            Err(Refusal { status, error, retry_after }) => Self {
                tool_call_id,
                status: ResultStatus(status),
                success: None,
                result: None,
                state: None,
                validated_inputs: None,
                idempotent_replayed: None,
                waits_for_page: None,
                remembered: None,
                error: Some(error),
                retry_after,
            },
        }
    }
}
