//! Requests of tools that run: what a person is asked, and the answer.

use super::Api;
use super::auth::Caller;
use super::body::{JsonObject, Strict};
use super::error::ApiError;
use super::formats::{Id, Text, Time};
use super::page::{Paged, RequestedSize, page_size};
use super::payload::{Json, Tag};
use super::thread_ref::ThreadRef;
use super::tools::McpToolView;
use crate::approvals::{Answered, Approvals, Decider};
use crate::domain::Principal;
use crate::domain::id::RequestId;
use crate::domain::tool_request::{self, Answer};
use crate::store::{CallScope, RequestListing, VisibleRequest};
use crate::tools::gate::Gate;
use poem_openapi::param::{Path, Query};
use poem_openapi::types::Example;
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;

/// What a tool asks for. `elicitation`: an MCP server asks for the fields of a form. `custom`: a tool of the application
/// asks, with a schema of its own.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename = "ToolRequestKind", rename_all = "snake_case", remote = "tool_request::RequestKind")]
enum RequestKind {
    Elicitation,
    Custom,
}

/// The state of a request. `open` waits for an answer; the others are final. `withdrawn` ended with its call, or the tool
/// waits no longer.
#[derive(Debug, Clone, Copy, Enum)]
#[oai(rename = "ToolRequestState", rename_all = "snake_case", remote = "tool_request::RequestState")]
enum RequestState {
    Open,
    Accepted,
    Declined,
    Cancelled,
    Expired,
    Withdrawn,
}

/// The answer to a request. `accept`: the tool gets the content. `decline`: it gets none, and may continue without it.
/// `cancel`: it gets none, and should end what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum, Deserialize)]
#[oai(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
enum AnswerAction {
    Accept,
    Decline,
    Cancel,
}

/// A request of a tool that runs, to those that may decide its call. The content of an answer is never shown.
#[derive(Debug, Object)]
#[oai(rename = "ToolRequest", skip_serializing_if_is_none)]
struct RequestView {
    /// The request, for the path of its answer.
    request_id: Id,
    /// The call that waits for the answer.
    tool_call_id: Id,
    /// The tool of the call.
    tool_name: String,
    mcp: Option<McpToolView>,
    /// The thread of the call.
    thread_id: Id,
    /// The session of the thread.
    session_id: Id,
    /// The run of the call.
    run_id: Id,
    /// The user of the thread, on whose behalf the tool runs: `user:<sub>`.
    requested_by: String,
    kind: RequestKind,
    /// The text of the tool for a person. The tool is not trusted: show beside the text which tool asks.
    message: String,
    /// The JSON Schema of the content of an answer. For an `elicitation` it is an object whose properties are texts,
    /// numbers, booleans or choices; a `custom` schema may also nest.
    schema: JsonObject,
    state: RequestState,
    /// Whether the request is open and the caller may accept it.
    can_accept: bool,
    /// Whether the request is open and the caller may decline or cancel it.
    can_decline: bool,
    /// When the tool asked.
    created_at: Time,
    /// When the tool waits no longer.
    expires_at: Time,
    /// The actor of the answer, if there is one.
    answered_by: Option<String>,
    /// When the answer came, if there is one.
    answered_at: Option<Time>,
}

impl RequestView {
    fn of(seen: &VisibleRequest, principal: &Principal, approvals: &Approvals, gate: &Gate) -> Self {
        let status = approvals.request_status(gate, principal, seen);
        let VisibleRequest { request, call, thread } = seen;
        let tool = gate.registry().get(&call.name);
        let (answered_by, answered_at) = request.answered.clone().unzip();
        Self {
            request_id: Id::of(request.id),
            tool_call_id: Id::of(call.id),
            tool_name: call.name.clone(),
            mcp: tool.and_then(|tool| tool.remote.as_ref()).map(McpToolView::of),
            thread_id: Id::of(thread.id),
            session_id: Id::of(thread.session_id),
            run_id: Id::of(call.run_id),
            requested_by: thread.actor(),
            kind: request.question.kind.into(),
            message: request.question.message.clone(),
            schema: JsonObject(request.question.schema.clone()),
            state: request.state.into(),
            can_accept: status.can_accept,
            can_decline: status.can_decline,
            created_at: request.created_at.into(),
            expires_at: request.expires_at.into(),
            answered_by,
            answered_at: answered_at.map(Time::from),
        }
    }
}

/// An answer to a request of a tool.
#[derive(Debug, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct AnswerToolRequest {
    action: AnswerAction,
    /// The content, which fits the `schema` of the request. Required with `accept`, and absent or null otherwise.
    content: Option<JsonObject>,
}

impl Example for AnswerToolRequest {
    fn example() -> Self {
        Self { action: AnswerAction::Decline, content: None }
    }
}

impl AnswerToolRequest {
    fn answer(self) -> Result<Answer, ApiError> {
        match (self.action, self.content) {
            (AnswerAction::Accept, Some(JsonObject(content))) => Ok(Answer::Accept(content)),
            (AnswerAction::Decline, None) => Ok(Answer::Decline),
            (AnswerAction::Cancel, None) => Ok(Answer::Cancel),
            (AnswerAction::Accept, None) => {
                Err(ApiError::bad_request("content: expected an object with the action accept"))
            }
            (AnswerAction::Decline | AnswerAction::Cancel, Some(_)) => {
                Err(ApiError::bad_request("content: expected none with the actions decline and cancel"))
            }
        }
    }
}

/// The result of an answer.
#[derive(Debug, Object)]
#[oai(rename = "ToolRequestAnswer")]
struct AnsweredView {
    /// The request in the path.
    request_id: Id,
    state: RequestState,
}

#[derive(ApiResponse)]
enum AnswerResponse {
    /// The request has this answer.
    #[oai(status = 200)]
    Answered(
        Json<AnsweredView>,
        /// `true` if an earlier request of the caller gave the same answer.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
}

pub(super) struct ToolRequests(pub(super) Api);

#[OpenApi(tag = "Tag::Approvals")]
impl ToolRequests {
    /// List requests of tools that run, newest first
    ///
    /// A tool that runs can ask people for the fields of a form. Returns the requests of the calls that the caller may
    /// see: those of the caller's threads, and those of held calls that the caller may approve. An operator gets all
    /// requests of the tenant.
    #[oai(path = "/tool_requests", method = "get", operation_id = "listToolRequests")]
    async fn list(
        &self,
        caller: Caller,
        /// The state of the requests; `open` if absent.
        state: Query<Option<Text<RequestState>>>,
        /// Only requests of calls of this session: its id, or the caller's own name for its root thread.
        session_id: Query<Option<ThreadRef>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Id>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<RequestView>, ApiError> {
        let session = self.0.selected_thread(&caller, session_id.0.as_ref()).await?;
        let before = cursor.0.map(|cursor| cursor.parse::<RequestId>()).transpose();
        let listing = RequestListing {
            scope: session.map_or(CallScope::Anywhere, CallScope::Session),
            state: requested_state(state.0.as_deref())?,
            before: before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?,
            size: self::page_size(page_size.0)?,
        };
        let approvals = &self.0.approvals;
        let (gate, visibility) = (approvals.gate(), approvals.visibility(&caller.0));
        let page = self.0.store.read().await?.visible_requests(&caller.0, &visibility, &listing).await?;
        let mut results = Paged::new(self.0.page_bytes);
        for seen in &page.items {
            let view = RequestView::of(seen, &caller.0, approvals, &gate);
            if !results.push(seen.request.id.to_string(), [view]) {
                break;
            }
        }
        Ok(results.finish(page.has_more))
    }

    /// Answer a request of a tool that runs
    ///
    /// A caller that may approve the call may accept, and one that may reject the call may decline or cancel. The
    /// content goes to the tool alone. The first answer counts: the same answer of the same caller again gets 200, any
    /// other 409 `request_closed`. Content that does not fit the schema gets 422 `invalid_inputs`, and the request stays
    /// open. The response does not wait for the tool.
    #[oai(path = "/tool_requests/:request_id/answer", method = "post", operation_id = "answerToolRequest")]
    async fn answer(
        &self,
        caller: Caller,
        /// The `request_id` of the list.
        request_id: Path<Id>,
        body: Strict<AnswerToolRequest>,
    ) -> Result<AnswerResponse, ApiError> {
        let answer = body.0.answer()?;
        let Ok(id) = request_id.0.parse::<RequestId>() else {
            // The attempt still counts against the rate limit, so that guessing ids is limited.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let answered = self.0.approvals.answer(Decider::Person(&caller.0), id, &answer).await?;
        let Answered { state, replayed } = answered;
        let view = AnsweredView { request_id: Id::of(id), state: state.into() };
        Ok(AnswerResponse::Answered(Json(view), replayed.then(|| "true".to_owned())))
    }
}

/// Returns the state that a request for a list names.
fn requested_state(text: Option<&str>) -> Result<tool_request::RequestState, ApiError> {
    let all = tool_request::RequestState::ALL;
    let Some(text) = text else { return Ok(tool_request::RequestState::Open) };
    all.into_iter().find(|state| state.name() == text).ok_or_else(|| {
        let names = all.map(tool_request::RequestState::name).join(", ");
        ApiError::bad_request(format!("state: expected one of {names}"))
    })
}
