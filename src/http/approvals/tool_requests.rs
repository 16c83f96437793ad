//! Requests of tools that run: what a person is asked, and the answer.

use crate::approvals::{AnsweredRequest, Approvals, Decider, Proposed};
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Owner, User},
};
use crate::http::auth::Caller;
use crate::http::body::formats::{Id, Text, Time};
use crate::http::body::page::{Paged, RequestedSize, page_size};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::strict::{JsonObject, Strict};
use crate::http::body::thread_ref::ThreadRef;
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use crate::http::routes::tools::McpToolView;
use crate::tools::gate::Gate;
use holdpoint_core::Principal;
use holdpoint_core::id::RequestId;
use holdpoint_core::tool::tool_request::{Answer, Content, Reply, RequestKind, RequestState};
use holdpoint_store::{CallScope, RequestListing, VisibleRequest};
use poem_openapi::param::{Path, Query};
use poem_openapi::types::Example;
use poem_openapi::{ApiResponse, Enum, Object, OpenApi};
use serde::Deserialize;

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

/// A content that people propose as the answer to a request.
#[derive(Debug, Object)]
#[oai(rename = "ToolRequestProposal")]
struct ProposalView {
    /// The hash of the content. A person confirms the content by this hash.
    content_hash: String,
    /// The content, which fits the `schema` of the request.
    content: JsonObject,
    /// The actors that propose this content, the first one first.
    by: Vec<String>,
    /// Whether the caller is one of them.
    own: bool,
    /// When the content was proposed first.
    at: Time,
}

/// A request of a tool that runs, to those that may decide its call. The content of an answer is never shown; what people
/// propose while the request is open is shown to those that may accept it.
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
    kind: Word<RequestKind>,
    /// The text of the tool for a person. The tool is not trusted: show beside the text which tool asks.
    message: String,
    /// The JSON Schema of the content of an answer. For an `elicitation` it is an object whose properties are texts,
    /// numbers, booleans or choices; a `custom` schema may also nest.
    schema: JsonObject,
    state: Word<RequestState>,
    /// Whether the request is open and the caller may accept it.
    can_accept: bool,
    /// Whether the request is open and the caller may decline or cancel it.
    can_decline: bool,
    /// How many people have to agree on the content of an answer: as many as have to approve the call, unless the
    /// operator lets one answer.
    required: u64,
    /// What people propose, the first proposal first. Empty for a caller that may not accept, and after the end of the
    /// request.
    proposals: Vec<ProposalView>,
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
        let VisibleRequest { request, call, thread, .. } = seen;
        let actor = principal.actor();
        let proposals = status.proposals.into_iter().map(|proposal| {
            let Content(content) = proposal.content;
            ProposalView {
                content_hash: proposal.content_hash,
                content: JsonObject(content),
                own: proposal.by.contains(&actor),
                by: proposal.by,
                at: proposal.at.into(),
            }
        });
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
            required: status.required.try_into().unwrap_or(u64::MAX),
            proposals: proposals.collect(),
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
    /// The content, which fits the `schema` of the request. With `accept` either this or `content_hash` is required.
    /// Absent or null otherwise.
    content: Option<JsonObject>,
    /// The hash of a proposed content that the caller confirms. Allowed with `accept` only. If no open proposal has it, the
    /// answer is 409 `stale`.
    content_hash: Option<String>,
}

impl Example for AnswerToolRequest {
    fn example() -> Self {
        Self { action: AnswerAction::Decline, content: None, content_hash: None }
    }
}

impl AnswerToolRequest {
    fn reply(self) -> Result<Reply, ApiError> {
        match (self.action, self.content, self.content_hash) {
            (AnswerAction::Accept, Some(JsonObject(content)), None) => {
                Ok(Reply::Give(Answer::Accept(content)))
            }
            (AnswerAction::Accept, None, Some(hash)) => Ok(Reply::Confirm(hash)),
            (AnswerAction::Decline, None, None) => Ok(Reply::Give(Answer::Decline)),
            (AnswerAction::Cancel, None, None) => Ok(Reply::Give(Answer::Cancel)),
            (AnswerAction::Accept, None, None) => {
                Err(ApiError::bad_request("content: expected an object with the action accept"))
            }
            (AnswerAction::Accept, Some(_), Some(_)) => {
                Err(ApiError::bad_request("content_hash: expected either this or content"))
            }
            (AnswerAction::Decline | AnswerAction::Cancel, Some(_), _) => {
                Err(ApiError::bad_request("content: expected none with the actions decline and cancel"))
            }
            (AnswerAction::Decline | AnswerAction::Cancel, None, Some(_)) => {
                Err(ApiError::bad_request("content_hash: expected none with the actions decline and cancel"))
            }
        }
    }
}

/// The result of an answer.
#[derive(Debug, Object)]
#[oai(rename = "ToolRequestAnswer", skip_serializing_if_is_none)]
struct AnsweredView {
    /// The request in the path.
    request_id: Id,
    state: Word<RequestState>,
    /// The hash of the proposed content, while more people have to confirm it.
    content_hash: Option<String>,
    /// The actors that propose this content, while more people have to confirm it. The caller is one of them.
    confirmed_by: Option<Vec<String>>,
    /// How many people have to propose it, while more people have to confirm it.
    required: Option<u64>,
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
    /// The answer counts as a proposal, and more people have to confirm it. The request is open.
    #[oai(status = 202)]
    Proposed(
        Json<AnsweredView>,
        /// `true` if the caller proposed the same content before.
        #[oai(header = "idempotent-replayed")]
        Option<String>,
    ),
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access =
    &[("listToolRequests", &[User]), ("answerToolRequest", &[Owner, Approver])];

pub(in crate::http) struct ToolRequests(pub(in crate::http) Api);

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
        state: Query<Option<Text<Word<RequestState>>>>,
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
        let results = Paged::new(self.0.rates.in_flight.page(&caller.0).await?);
        let page = self.0.store.read().await?.visible_requests(&caller.0, &visibility, &listing).await?;
        Ok(results.of_rows(&page, |seen| {
            (seen.request.id.to_string(), RequestView::of(seen, &caller.0, approvals, &gate))
        }))
    }

    /// Answer a request of a tool that runs
    ///
    /// A caller that may approve the call may accept, and one that may reject the call may decline or cancel. The
    /// content goes to the tool alone. The first answer counts: the same answer of the same caller again gets 200, any
    /// other 409 `request_closed`. Content that does not fit the schema gets 422 `invalid_inputs`, and the request stays
    /// open. The response does not wait for the tool.
    ///
    /// If several people had to approve the call, as many have to agree on a content. The first answer is a proposal: 202.
    /// The others confirm it by its `content_hash`, or propose another content, which replaces what the same person
    /// proposed before. To decline or to cancel, one person is enough.
    #[oai(path = "/tool_requests/:request_id/answer", method = "post", operation_id = "answerToolRequest")]
    async fn answer(
        &self,
        caller: Caller,
        /// The `request_id` of the list.
        request_id: Path<Id>,
        body: Strict<AnswerToolRequest>,
    ) -> Result<AnswerResponse, ApiError> {
        let reply = body.0.reply()?;
        let Ok(id) = request_id.0.parse::<RequestId>() else {
            // The attempt still counts against the rate limit, so that guessing ids is limited.
            self.0.approvals.count(&caller.0)?;
            return Err(ApiError::not_found());
        };
        let answered = self.0.approvals.answer(Decider::Person(&caller.0), id, &reply).await?;
        let AnsweredRequest { state, replayed, proposed } = answered;
        let replayed = replayed.then(|| "true".to_owned());
        let request_id = Id::of(id);
        let state = state.into();
        Ok(match proposed {
            None => {
                let view = AnsweredView {
                    request_id,
                    state,
                    content_hash: None,
                    confirmed_by: None,
                    required: None,
                };
                AnswerResponse::Answered(Json(view), replayed)
            }
            Some(Proposed { content_hash, confirmed_by, required }) => {
                let (content_hash, confirmed_by) = (Some(content_hash), Some(confirmed_by));
                let required = Some(required.try_into().unwrap_or(u64::MAX));
                let view = AnsweredView { request_id, state, content_hash, confirmed_by, required };
                AnswerResponse::Proposed(Json(view), replayed)
            }
        })
    }
}

/// Returns the state that a request for a list names.
fn requested_state(text: Option<&str>) -> Result<RequestState, ApiError> {
    let Some(text) = text else { return Ok(RequestState::Open) };
    RequestState::of_word(text).ok_or_else(|| {
        ApiError::bad_request(format!("state: expected one of {}", RequestState::WORDS.join(", ")))
    })
}
