//! Tool calls on the wire, and the route that shows one.

use super::Api;
use super::auth::Caller;
use super::body::JsonObject;
use super::error::ApiError;
use super::payload::{Json, Tag};
use crate::approvals::Approvals;
use crate::domain::call::{State, ToolCall};
use crate::domain::decision::Decision;
use crate::store::Thread;
use poem_openapi::param::Path;
use poem_openapi::registry::{MetaSchema, MetaSchemaRef};
use poem_openapi::types::{Any, ParseFromJSON, ParseResult, ToJSON, Type};
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde_json::Value;
use std::borrow::Cow;

/// A call of a tool.
#[derive(Debug, Object)]
#[oai(rename = "ToolCall", skip_serializing_if_is_none)]
pub(super) struct CallView {
    /// Its id, minted by the server.
    tool_call_id: String,
    thread_id: String,
    session_id: String,
    message_id: String,
    run_id: String,
    tool_name: String,
    /// The inputs as the model proposed them.
    input: JsonObject,
    /// True where the stored inputs cannot be read: those here are empty. The call can be rejected or cancelled, and is never
    /// run.
    unreadable: Option<bool>,
    /// The inputs a person put in their place.
    validated_inputs: Option<JsonObject>,
    /// SHA-256 of the canonical JSON (RFC 8785, but numbers without a fraction by all their digits) of
    /// `[tool_name, input, schema_hash]`, with the schema of the
    /// tool as it is registered now. Echo it in a decision to be told if the tool has changed.
    input_hash: String,
    /// SHA-256 of the canonical JSON of the tool's input schema when the call was made.
    schema_hash: String,
    /// Whether a person is, or was, asked.
    held: bool,
    /// Null while a person is asked; true once the call may run, by a person's word or the policy's; false if it
    /// will not.
    validated: Validated,
    /// pending, approved, executing, succeeded, failed, interrupted, rejected, expired, cancelled or invalid.
    state: String,
    /// low, medium or high.
    risk_level: String,
    /// Why a person is asked.
    reason: Option<String>,
    /// The decision in force.
    decision: Option<DecisionView>,
    /// The run of a child thread that does it, or did: the tool is a sub-agent.
    child_run_id: Option<String>,
    /// The text the model reads.
    result: Option<String>,
    /// What the tool gave.
    output: Option<Any<Value>>,
    created_at: String,
    expires_at: Option<String>,
    started_at: Option<String>,
    finished_at: Option<String>,
}

/// A decision about a call.
#[derive(Debug, Object)]
#[oai(rename = "Decision", skip_serializing_if_is_none)]
struct DecisionView {
    /// approve, reject, expire or cancel.
    decision: String,
    /// Who: `user:<sub>`, `system:policy` and the like.
    by: String,
    at: String,
    /// Whether other inputs than the model's were approved.
    edited: bool,
    reason: Option<String>,
    /// The hash of what was decided on.
    input_hash: Option<String>,
    /// Where it came in.
    surface: String,
    /// What of the policy decided, if it did: always_allow, always_deny, session, mode, `rule:` and a rule's name, or
    /// `remembered:` and the id of a grant.
    source: Option<String>,
    /// session: the yes is remembered for such calls of the session.
    remember: Option<String>,
}

impl DecisionView {
    fn of(decision: &Decision) -> Self {
        Self {
            decision: decision.verdict.as_str().to_owned(),
            by: decision.by.clone(),
            at: decision.at.to_rfc3339(),
            edited: decision.edited,
            reason: decision.reason.clone(),
            input_hash: Some(decision.input_hash.clone()),
            surface: decision.surface.as_str().to_owned(),
            source: decision.source.clone(),
            remember: decision.remember.map(|remember| remember.as_str().to_owned()),
        }
    }
}

/// A decision as JSON, for the details of an error.
pub(super) fn decision(decision: &Decision) -> Value {
    DecisionView::of(decision).to_json().unwrap_or_default()
}

/// Null while there is no answer: the one field that is ever null, because its absence would read as "not
/// asked".
#[derive(Debug)]
struct Validated(Option<bool>);

impl Type for Validated {
    const IS_REQUIRED: bool = true;

    type RawValueType = bool;
    type RawElementValueType = bool;

    fn name() -> Cow<'static, str> {
        "validated".into()
    }

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Inline(Box::new(MetaSchema { nullable: true, ..MetaSchema::new("boolean") }))
    }

    fn as_raw_value(&self) -> Option<&bool> {
        self.0.as_ref()
    }

    fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a bool> + 'a> {
        Box::new(self.0.iter())
    }
}

impl ParseFromJSON for Validated {
    fn parse_from_json(value: Option<Value>) -> ParseResult<Self> {
        Ok(Self(value.and_then(|value| value.as_bool())))
    }
}

impl ToJSON for Validated {
    fn to_json(&self) -> Option<Value> {
        Some(self.0.map_or(Value::Null, Value::Bool))
    }
}

impl CallView {
    pub(super) fn of(call: &ToolCall, thread: &Thread, approvals: &Approvals) -> Self {
        let output = match &call.state {
            State::Succeeded(_, _, output, _) => Some(Any(output.clone())),
            _ => None,
        };
        Self {
            tool_call_id: call.id.to_string(),
            thread_id: call.thread_id.to_string(),
            session_id: thread.session_id.to_string(),
            message_id: call.message_id.to_string(),
            run_id: call.run_id.to_string(),
            tool_name: call.name.clone(),
            input: JsonObject(call.input.clone()),
            unreadable: call.unreadable.then_some(true),
            validated_inputs: call.edited_input().cloned().map(JsonObject),
            input_hash: approvals.shown_hash(call),
            schema_hash: call.schema_hash.clone(),
            held: call.held,
            validated: Validated(call.validated()),
            state: call.state.as_str().to_owned(),
            risk_level: call.risk.as_str().to_owned(),
            reason: call.reason.clone(),
            decision: call.decision.as_ref().map(DecisionView::of),
            child_run_id: call.child_run_id.map(|child| child.to_string()),
            result: call.end().map(|end| end.result.clone()),
            output,
            created_at: call.created_at.to_rfc3339(),
            expires_at: call.expires_at.map(|at| at.to_rfc3339()),
            started_at: call.execution().map(|execution| execution.started_at.to_rfc3339()),
            finished_at: call.end().map(|end| end.at.to_rfc3339()),
        }
    }
}

/// What became of the wish to cancel a call.
#[derive(Debug, Object)]
#[oai(rename = "CancelToolCallResult")]
struct CancelView {
    /// Whether it is sure that it did not run, and will not.
    success: bool,
    tool_call_id: String,
    /// cancelled; of a call that ran: succeeded or failed, as its tool says; interrupted if the tool did not return in time;
    /// executing if it has not ended yet.
    state: String,
}

impl CancelView {
    fn of(call: &ToolCall) -> Self {
        Self {
            success: call.is_withdrawn(),
            tool_call_id: call.id.to_string(),
            state: call.state.as_str().to_owned(),
        }
    }
}

#[derive(ApiResponse)]
enum CancelAnswer {
    /// It has ended.
    #[oai(status = 200)]
    Done(Json<CancelView>),
    /// The tool is asked to stop and has not yet.
    #[oai(status = 202)]
    UnderWay(Json<CancelView>),
}

pub(super) struct Calls(pub(super) Api);

#[OpenApi]
impl Calls {
    /// One call and how it stands
    ///
    /// For the thread's user and for operators; a call that a person is, or was, asked about also for those who may
    /// approve its tool's calls.
    #[oai(
        path = "/tool_calls/:tool_call_id",
        method = "get",
        operation_id = "getToolCall",
        tag = "Tag::ToolCalls"
    )]
    async fn get(&self, caller: Caller, tool_call_id: Path<String>) -> Result<Json<CallView>, ApiError> {
        let id = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        let read = self.0.store.read().await?;
        let seen = self.0.approvals.visible_call(&read, &caller.0, id).await?;
        let (call, thread) = seen.ok_or_else(ApiError::not_found)?;
        Ok(Json(CallView::of(&call, &thread, &self.0.approvals)))
    }

    /// Cancel a call
    ///
    /// One that nobody has begun is cancelled and never runs. Of one that runs the tool is asked to stop: what it returns within
    /// `tools.cancel_grace` is the outcome, and without that the outcome is unknown. Only the thread's user cancels.
    #[oai(
        path = "/tool_calls/:tool_call_id/cancel",
        method = "post",
        operation_id = "cancelToolCall",
        tag = "Tag::ToolCalls"
    )]
    async fn cancel(&self, caller: Caller, tool_call_id: Path<String>) -> Result<CancelAnswer, ApiError> {
        let id = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        let call = self.0.approvals.cancel(&caller.0, id).await?;
        let view = Json(CancelView::of(&call));
        Ok(if call.end().is_some() { CancelAnswer::Done(view) } else { CancelAnswer::UnderWay(view) })
    }
}
