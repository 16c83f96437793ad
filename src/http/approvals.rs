//! The inbox: calls that people are, or were, asked about.

use super::Api;
use super::auth::Caller;
use super::body::JsonObject;
use super::call::CallView;
use super::error::ApiError;
use super::payload::{Paged, Tag, page_size};
use crate::approvals::{Approvals, DecisionStatus};
use crate::domain::Principal;
use crate::domain::call::CALL_STATES;
use crate::domain::id::{ThreadId, ToolCallId};
use crate::store::{CallScope, Listing, Read, VisibleCall};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};

/// A call that a person is, or was, asked about.
#[derive(Debug, Object)]
#[oai(rename = "Approval", skip_serializing_if_is_none)]
struct ApprovalView {
    #[oai(flatten)]
    tool_call: CallView,
    /// What its tool does. Absent if the tool is gone.
    tool_description: Option<String>,
    /// What its tool takes: a JSON Schema. Absent if the tool is gone.
    input_schema: Option<JsonObject>,
    /// Whether it is pending and the caller's yes would count. Whose would not may still be allowed to reject.
    can_decide: bool,
    /// How many people have to approve the same inputs before it runs.
    required: u64,
    /// Who has approved what runs, or ran; while it is pending, the inputs as proposed.
    approved_by: Vec<String>,
}

impl ApprovalView {
    fn of(seen: &VisibleCall, principal: &Principal, approvals: &Approvals) -> Self {
        let DecisionStatus { tool, can_decide, required, approved_by } =
            approvals.decision_status(principal, seen);
        let schema = tool.map(|tool| tool.input_schema.as_object().cloned().unwrap_or_default());
        Self {
            tool_call: CallView::of(&seen.call, &seen.thread, approvals),
            tool_description: tool.map(|tool| tool.description.clone()),
            input_schema: schema.map(JsonObject),
            can_decide,
            required: required.try_into().unwrap_or(u64::MAX),
            approved_by,
        }
    }
}

/// What a request says of the calls to list, as it came.
#[derive(Debug)]
struct Asked {
    state: Option<String>,
    tool_name: Option<String>,
    cursor: Option<String>,
    page_size: Option<u64>,
}

pub(super) struct Inbox(pub(super) Api);

#[OpenApi(tag = "Tag::Approvals")]
impl Inbox {
    /// Calls that wait for a person, newest first
    ///
    /// Those of the caller's threads, those of tools whose calls the caller may approve, and for operators all of their
    /// tenant.
    #[oai(path = "/approvals", method = "get", operation_id = "listApprovals")]
    async fn list(
        &self,
        caller: Caller,
        /// How they stand: any state of a call; `pending` if absent.
        state: Query<Option<String>>,
        /// Only those of this tool.
        tool_name: Query<Option<String>>,
        /// Only those of this session.
        session_id: Query<Option<String>>,
        /// Where to go on: the `next_cursor` of the page before.
        cursor: Query<Option<String>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<u64>>,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let session = session_id.0.map(|id| id.parse::<ThreadId>()).transpose();
        let session =
            session.map_err(|_| ApiError::bad_request("session_id: expected the id of a session"))?;
        let place = session.map_or(CallScope::Anywhere, CallScope::Session);
        let (state, tool_name, cursor, page_size) = (state.0, tool_name.0, cursor.0, page_size.0);
        let asked = Asked { state, tool_name, cursor, page_size };
        let listing = asked.listing(place, &self.0)?;
        self.page(&self.0.store.read().await?, &caller.0, &listing).await
    }

    /// Calls of a thread that wait for a person, newest first
    ///
    /// For the thread's user and for operators; for others, those of tools whose calls they may approve, if there are
    /// or were any.
    #[oai(path = "/threads/:thread_id/approvals", method = "get", operation_id = "listThreadApprovals")]
    async fn of_thread(
        &self,
        caller: Caller,
        thread_id: Path<String>,
        /// How they stand: any state of a call; `pending` if absent.
        state: Query<Option<String>>,
        /// Only those of this tool.
        tool_name: Query<Option<String>>,
        /// Where to go on: the `next_cursor` of the page before.
        cursor: Query<Option<String>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<u64>>,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let id = thread_id.0.parse().map_err(|_| ApiError::not_found())?;
        let (state, tool_name, cursor, page_size) = (state.0, tool_name.0, cursor.0, page_size.0);
        self.page_of(&caller.0, CallScope::Thread(id), &Asked { state, tool_name, cursor, page_size }).await
    }

    /// Calls of a session that wait for a person, newest first
    ///
    /// Those of its root thread and of all below it, as for a thread.
    #[oai(path = "/sessions/:session_id/approvals", method = "get", operation_id = "listSessionApprovals")]
    async fn of_session(
        &self,
        caller: Caller,
        session_id: Path<String>,
        /// How they stand: any state of a call; `pending` if absent.
        state: Query<Option<String>>,
        /// Only those of this tool.
        tool_name: Query<Option<String>>,
        /// Where to go on: the `next_cursor` of the page before.
        cursor: Query<Option<String>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<u64>>,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let id = session_id.0.parse().map_err(|_| ApiError::not_found())?;
        let (state, tool_name, cursor, page_size) = (state.0, tool_name.0, cursor.0, page_size.0);
        self.page_of(&caller.0, CallScope::Session(id), &Asked { state, tool_name, cursor, page_size }).await
    }
}

impl Inbox {
    /// A page of what is in a place that is named, and has to be there.
    async fn page_of(
        &self,
        principal: &Principal,
        place: CallScope,
        asked: &Asked,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let listing = asked.listing(place, &self.0)?;
        let (read, visibility) = (self.0.store.read().await?, self.0.approvals.visibility(principal));
        if !read.is_visible(principal, &visibility, place).await? {
            return Err(ApiError::not_found());
        }
        self.page(&read, principal, &listing).await
    }

    async fn page(
        &self,
        read: &Read,
        principal: &Principal,
        listing: &Listing<'_>,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let approvals = &self.0.approvals;
        let page = read.visible_holds(principal, &approvals.visibility(principal), listing).await?;
        let mut results = Paged::new(self.0.page_bytes);
        for seen in &page.items {
            if !results.push(seen.call.id.to_string(), [ApprovalView::of(seen, principal, approvals)]) {
                break;
            }
        }
        Ok(results.finish(page.has_more))
    }
}

impl Asked {
    fn listing(&self, place: CallScope, api: &Api) -> Result<Listing<'_>, ApiError> {
        let state = self.state.as_deref().unwrap_or("pending");
        if !CALL_STATES.contains(&state) {
            return Err(ApiError::bad_request(format!("state: expected one of {}", CALL_STATES.join(", "))));
        }
        let tool = self.tool_name.as_deref();
        if tool.is_some_and(|name| name.contains('\0')) {
            return Err(ApiError::bad_request("tool_name: expected the name of a tool"));
        }
        let before = self.cursor.as_ref().map(|cursor| cursor.parse::<ToolCallId>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        Ok(Listing { scope: place, state, tool, before, page: api.page(page_size(self.page_size)?) })
    }
}
