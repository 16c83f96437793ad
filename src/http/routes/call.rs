//! The wire form of tool calls, and the routes of a single call.

use crate::approvals::EditPreview;
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Operator, Owner},
};
use crate::http::approvals::decision_view::DecisionView;
use crate::http::auth::Caller;
use crate::http::body::described::{described, inline};
use crate::http::body::formats::{Hash, Id, Time};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::{JsonObject, Strict};
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use crate::http::routes::definitions::UnacceptedView;
use crate::tools::gate::Gate;
use holdpoint_core::call::{RiskLevel, State, StateKind, ToolCall};
use holdpoint_core::card::preview::Preview;
use holdpoint_core::card::progress::{Progress, ReportedProgress};
use holdpoint_core::tool::input::Input;
use holdpoint_store::Thread;
use poem_openapi::param::Path;
use poem_openapi::registry::MetaSchema;
use poem_openapi::types::{Any, Example};
use poem_openapi::{ApiResponse, Object, OpenApi};
use serde::Deserialize;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The state of a tool call in a body.
pub(in crate::http) type CallState = Word<StateKind>;

impl From<&State> for CallState {
    fn from(state: &State) -> Self {
        state.kind().into()
    }
}

/// What a tool says that a call would do, for an approver: `preview` with the proposed inputs, `validated_preview`
/// with those that replaced them. It has either `text` or `failed`, and is absent if the tool has no previews.
#[derive(Debug, Object)]
#[oai(rename = "Preview", skip_serializing_if_is_none)]
pub(in crate::http) struct PreviewView {
    /// What the call would do. Plain text, at most 8 KiB.
    text: Option<String>,
    /// Why the tool says nothing. The call can be decided all the same.
    failed: Option<String>,
}

impl PreviewView {
    pub(in crate::http) fn of(preview: &Preview) -> Self {
        match preview {
            Preview::Text(text) => Self { text: Some(text.clone()), failed: None },
            Preview::Failed(why) => Self { text: None, failed: Some(why.clone()) },
        }
    }
}

/// How far the tool says that a call has come: its last stored report. While the call runs, a report is stored after a pause
/// of 5 seconds, or of a twentieth of the time that the call has run. The last one stays after the end. Absent if
/// the tool reports nothing.
#[derive(Debug, Object)]
#[oai(rename = "Progress", skip_serializing_if_is_none)]
pub(in crate::http) struct ProgressView {
    /// Plain text of the tool, at most 500 characters.
    message: Option<String>,
    /// How much is done, in a unit of the tool.
    done: Option<f64>,
    /// How much there is to do, in the same unit.
    total: Option<f64>,
    /// When the report was stored.
    at: Time,
}

impl ProgressView {
    pub(in crate::http) fn of(reported: &ReportedProgress) -> Self {
        let ReportedProgress { progress: Progress { message, done, total }, at, .. } = reported;
        Self { message: message.clone(), done: *done, total: *total, at: (*at).into() }
    }
}

/// A call of a tool by the model, from the proposal to the outcome.
#[derive(Debug, Object)]
#[oai(rename = "ToolCall", skip_serializing_if_is_none)]
pub(in crate::http) struct CallView {
    /// The id of the call. The server assigns it.
    tool_call_id: Id,
    /// The thread whose model made the call.
    thread_id: Id,
    /// The root thread above `thread_id`, or that thread itself.
    session_id: Id,
    /// The assistant message that contains the call.
    message_id: Id,
    /// The run that waits for the call, or waited for it.
    run_id: Id,
    /// The tool that the model calls, one of `GET /tools`.
    tool_name: String,
    /// The inputs as the model proposed them, with `•••` in place of each secret.
    input: JsonObject,
    /// The inputs as the model wrote them, if the server repaired them (`tools.repair`). The model reads these in its
    /// history; `input` is what is judged, decided and run. Absent if the tool has secrets.
    model_input: Option<JsonObject>,
    /// True if the stored inputs cannot be read. `input` is then empty. The call can be rejected or
    /// cancelled, and never runs.
    unreadable: Option<bool>,
    preview: Option<PreviewView>,
    /// The inputs that replaced the proposed ones in the approval, with `•••` in place of each secret.
    validated_inputs: Option<JsonObject>,
    /// The JSON Pointers of the secrets in `input` and `validated_inputs`: values that the tool's schema, when the model
    /// made the call, marks with `writeOnly` or `format: password`. `POST /tool_calls/{tool_call_id}/reveal` returns
    /// them. Absent without secrets.
    secret_inputs: Option<Vec<String>>,
    validated_preview: Option<PreviewView>,
    /// SHA-256 of the canonical JSON of `[tool_name, input, schema_hash]`, with `preview` as the fourth item if the
    /// call has one, where `schema_hash` is that of the
    /// tool as registered now. Canonical JSON follows RFC 8785, except that a number without a fraction is
    /// written with all its digits. A decision that echoes this hash is refused as `stale` if the tool's
    /// schema has changed.
    input_hash: Hash,
    /// SHA-256 of the canonical JSON of the tool's input schema at the time of the call. For a tool with
    /// constants, of `[input_schema, constants]`.
    schema_hash: Hash,
    /// Whether the call is or was held for an approval.
    held: bool,
    /// Null while the call is pending; true if the call was approved, by a person or by the policy; false if
    /// the call was not approved and does not run.
    validated: Validated,
    state: CallState,
    risk_level: Word<RiskLevel>,
    /// The reason for the hold.
    reason: Option<String>,
    unaccepted_definition: Option<UnacceptedView>,
    decision: Option<DecisionView>,
    /// The run of the child thread that executes the call, if the tool is a sub-agent.
    child_run_id: Option<Id>,
    /// Present if the tool's service accepted the call (202), or an MCP server continues the call: the time until
    /// which the outcome has to come. After it the outcome is unknown, until the service reports it.
    result_deadline: Option<Time>,
    progress: Option<ProgressView>,
    /// The text that the model reads.
    result: Option<String>,
    /// The output of the tool.
    output: Option<Any<Value>>,
    /// When the model made the call.
    created_at: Time,
    /// When a call that is still pending expires and never runs. Absent if it does not expire.
    expires_at: Option<Time>,
    /// When the tool started.
    started_at: Option<Time>,
    /// When the call reached its final state.
    finished_at: Option<Time>,
}

/// Null while the call is pending. This is the only field that is ever null: an absent field would read as a
/// call that is not held.
#[derive(Debug)]
struct Validated(Option<bool>);

described! {
    Validated {
        name: "validated",
        schema: inline(MetaSchema { nullable: true, ..MetaSchema::new("boolean") }),
        parse: |value| Ok(Self(value.and_then(|value| value.as_bool()))),
        json: |validated| Some(validated.0.map_or(Value::Null, Value::Bool)),
    }
}

impl CallView {
    pub(in crate::http) fn of(call: &ToolCall, thread: &Thread, gate: &Gate) -> Self {
        let output = match &call.state {
            State::Succeeded(_, _, output, _) => Some(Any(output.clone())),
            _ => None,
        };
        Self {
            tool_call_id: Id::of(call.id),
            thread_id: Id::of(call.thread_id),
            session_id: Id::of(thread.session_id),
            message_id: Id::of(call.message_id),
            run_id: Id::of(call.run_id),
            tool_name: call.name.clone(),
            input: call.shown_proposal().into(),
            model_input: call.shown_model_input().map(JsonObject::from),
            unreadable: call.unreadable.then_some(true),
            preview: call.preview.as_ref().map(PreviewView::of),
            validated_inputs: call.shown_edit().map(JsonObject::from),
            secret_inputs: Some(call.secret_pointers()).filter(|it| !it.is_empty()),
            validated_preview: call.edited_preview().map(PreviewView::of),
            input_hash: gate.shown_hash(call).into(),
            schema_hash: call.schema_hash.clone().into(),
            held: call.held,
            validated: Validated(call.validated()),
            state: (&call.state).into(),
            risk_level: call.risk.into(),
            reason: call.reason.clone(),
            unaccepted_definition: gate.unaccepted(call).map(UnacceptedView::of),
            decision: call.decision.as_ref().map(DecisionView::of),
            child_run_id: call.child_run_id().map(Id::of),
            result_deadline: call.result_deadline().map(Time::from),
            progress: call.progress.as_ref().map(ProgressView::of),
            result: call.text_for_model().map(Cow::into_owned),
            output,
            created_at: call.created_at.into(),
            expires_at: call.expires_at.map(Time::from),
            started_at: call.execution().map(|execution| execution.started_at.into()),
            finished_at: call.end().map(|end| end.at.into()),
        }
    }
}

/// The result of a request to cancel a call.
#[derive(Debug, Object)]
#[oai(rename = "CancelToolCallResult")]
struct CancelView {
    /// Whether the call certainly did not run and will not run.
    success: bool,
    /// The call in the path of the request.
    tool_call_id: Id,
    state: CallState,
}

impl CancelView {
    fn of(call: &ToolCall) -> Self {
        Self { success: call.is_withdrawn(), tool_call_id: Id::of(call.id), state: (&call.state).into() }
    }
}

/// Other inputs for a held call.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, example)]
#[serde(deny_unknown_fields)]
struct PreviewEdit {
    /// Inputs that would replace the proposed ones.
    validated_inputs: JsonObject,
}

impl Example for PreviewEdit {
    fn example() -> Self {
        Self { validated_inputs: JsonObject(Input::from_iter([("path".to_owned(), json!("new.txt"))])) }
    }
}

/// What the call would do with other inputs.
#[derive(Debug, Object)]
#[oai(rename = "EditPreview", skip_serializing_if_is_none)]
struct EditPreviewView {
    preview: Option<PreviewView>,
    /// For `preview_hash` of the approval with these inputs. SHA-256 of the inputs and the preview, as `input_hash`
    /// of a call.
    preview_hash: Hash,
}

#[derive(ApiResponse)]
enum CancelResponse {
    /// The call has ended.
    #[oai(status = 200)]
    Done(Json<CancelView>),
    /// The tool was asked to stop and is still running.
    #[oai(status = 202)]
    Accepted(Json<CancelView>),
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("getToolCall", &[Owner, Approver, Delegate, Operator]),
    ("previewToolCall", &[Owner, Approver, Delegate]),
    ("cancelToolCall", &[Owner]),
];

pub(in crate::http) struct Calls(pub(in crate::http) Api);

#[OpenApi]
impl Calls {
    /// Get a tool call
    ///
    /// Allowed for the thread's user and for operators. For a call that is or was held, also allowed for
    /// callers with a role that approves the tool's calls.
    #[oai(
        path = "/tool_calls/:tool_call_id",
        method = "get",
        operation_id = "getToolCall",
        tag = "Tag::ToolCalls"
    )]
    async fn get(
        &self,
        caller: Caller,
        /// The tool call, as its approval or an event names it.
        tool_call_id: Path<Id>,
    ) -> Result<Json<CallView>, ApiError> {
        let id = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        let read = self.0.store.read().await?;
        let seen = self.0.approvals.visible_call(&read, &caller.0, id).await?;
        let (call, thread) = seen.ok_or_else(ApiError::not_found)?;
        Ok(Json(CallView::of(&call, &thread, &self.0.approvals.gate())))
    }

    /// Preview a held call with other inputs
    ///
    /// Asks the tool what the call would do with these inputs. Nothing is stored and nothing runs. Allowed for
    /// callers that may approve the call; the inputs have to pass the checks of an approval. If the tool has
    /// previews, an approval with these inputs has to name the `preview_hash`: the decision makes the preview
    /// again, and is refused as `stale` if it is another one. Counts as a decision for the rate limit.
    #[oai(
        path = "/tool_calls/:tool_call_id/preview",
        method = "post",
        operation_id = "previewToolCall",
        tag = "Tag::ToolCalls"
    )]
    async fn preview(
        &self,
        caller: Caller,
        /// The tool call, as its approval or an event names it.
        tool_call_id: Path<Id>,
        body: Strict<PreviewEdit>,
    ) -> Result<Json<EditPreviewView>, ApiError> {
        let Ok(id) = tool_call_id.0.parse() else {
            // An invalid id names no call. The attempt still counts, as for a decision.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let previewed = self.0.approvals.preview_edit(&caller.0, id, body.0.validated_inputs.0).await;
        let EditPreview { preview, hash } = previewed.map_err(ApiError::not_decided_here)?;
        let preview = preview.as_ref().map(PreviewView::of);
        Ok(Json(EditPreviewView { preview, preview_hash: hash.into() }))
    }

    /// Cancel a tool call
    ///
    /// A call that has not started is cancelled and never runs. If the tool is running, the server asks the
    /// tool to stop: a result within `tools.cancel_grace` is the outcome, `succeeded` or `failed`; otherwise the
    /// outcome is unknown, `interrupted`. With 202 the call is still `executing`.
    /// Only the thread's user can cancel a call.
    #[oai(
        path = "/tool_calls/:tool_call_id/cancel",
        method = "post",
        operation_id = "cancelToolCall",
        tag = "Tag::ToolCalls"
    )]
    async fn cancel(
        &self,
        caller: Caller,
        /// The tool call, as its approval or an event names it.
        tool_call_id: Path<Id>,
    ) -> Result<CancelResponse, ApiError> {
        let id = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        let call = self.0.approvals.cancel(&caller.0, id).await?;
        let view = Json(CancelView::of(&call));
        Ok(if call.end().is_some() { CancelResponse::Done(view) } else { CancelResponse::Accepted(view) })
    }
}
