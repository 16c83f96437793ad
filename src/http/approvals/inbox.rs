//! The inbox: calls that are or were held for an approval.

use crate::approvals::DecisionStatus;
use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Operator, Owner, User},
};
use crate::http::auth::Caller;
use crate::http::body::formats::{Id, Searched, Text, Time};
use crate::http::body::page::{Paged, RequestedSize, page_size};
use crate::http::body::payload::Tag;
use crate::http::body::strict::JsonObject;
use crate::http::body::thread_ref::ThreadRef;
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use crate::http::routes::call::{CallState, CallView};
use crate::http::routes::tools::McpToolView;
use crate::tools::gate::Gate;
use holdpoint_core::Principal;
use holdpoint_core::call::{CALL_STATES, Escalation, StateKind};
use holdpoint_core::card::CardPart;
use holdpoint_core::card::obstacle::{Obstacle, ObstacleKind};
use holdpoint_core::id::ToolCallId;
use holdpoint_core::text::placeholders::Piece;
use holdpoint_core::tool::headline::FilledHeadline;
use holdpoint_store::{CallScope, Listing, Read, VisibleCall};
use poem_openapi::param::{Path, Query};
use poem_openapi::{Object, OpenApi};

/// Maximum length of a search, in characters.
const SEARCH_CHARS: usize = 200;

/// A call that is or was held for an approval.
#[derive(Debug, Object)]
#[oai(rename = "Approval", skip_serializing_if_is_none)]
pub(in crate::http) struct ApprovalView {
    #[oai(flatten)]
    tool_call: CallView,
    /// The user of the thread, on whose behalf the tool would run: `user:<sub>`.
    requested_by: String,
    /// The title of the thread. The user gave it; for the thread of a sub-agent, the tool.
    thread_title: String,
    /// The tool's question to the approver, with the proposed inputs in it. Each value is cut, and characters that hide
    /// or reverse text are replaced by their numbers. Show the inputs beside it.
    headline: Option<String>,
    /// The pieces of `headline` in their order: `text` has words of the operator, `value` a value that the model chose.
    /// Show the values apart.
    headline_parts: Option<Vec<HeadlinePart>>,
    /// The parts that a card has to show whole before it offers an approval, in their order. The hash of the approval
    /// covers them.
    card_parts: Vec<Word<CardPart>>,
    /// The description of the tool. Absent if the tool no longer exists.
    tool_description: Option<String>,
    /// The JSON Schema of the tool's inputs. Absent if the tool no longer exists.
    input_schema: Option<JsonObject>,
    /// Inputs that the operator sets and the tool adds to `input`. The model neither sees nor chooses them.
    constants: Option<JsonObject>,
    mcp: Option<McpToolView>,
    /// Whether the call is pending and an approval by the caller would count. If false, the caller may still
    /// be allowed to reject the call.
    can_decide: bool,
    cannot_approve: Option<CannotApprove>,
    /// Whether the call is pending and an approval by the caller with other inputs may be accepted.
    can_edit: bool,
    /// Whether the call is pending and an approval by the caller may be remembered for the session.
    can_remember: bool,
    /// Whether the call is pending and the caller may reject it.
    can_reject: bool,
    /// The approver in whose place the caller would decide, as an actor: an approver delegated the call to the caller.
    on_behalf_of: Option<String>,
    /// When the server writes the event `tool.reminded` about the deadline. Absent if it has, or will not.
    remind_at: Option<Time>,
    escalation: Option<EscalationView>,
    /// How many people must approve the same inputs before the call runs.
    required: u64,
    /// The actors that approved the inputs that run or ran; for a pending call, the inputs as proposed.
    approved_by: Vec<String>,
}

/// Why an approval by the caller would be refused now, or would not count. Absent if `can_decide` is true, or if the call
/// is not pending.
#[derive(Debug, Object)]
struct CannotApprove {
    code: Word<ObstacleKind>,
    /// The reason in a sentence, for people.
    message: String,
}

/// A piece of a headline. It has one of the two fields.
#[derive(Debug, Object)]
#[oai(skip_serializing_if_is_none)]
struct HeadlinePart {
    /// Words of the operator.
    text: Option<String>,
    /// A value that the model chose, at most 60 characters of it. A character that hides or reverses text is its number.
    value: Option<String>,
}

/// The further roles that may decide the call, if it waits long. Absent if no role is configured.
#[derive(Debug, Object)]
#[oai(rename = "Escalation", skip_serializing_if_is_none)]
struct EscalationView {
    /// The roles, as configured when the call was held.
    roles: Vec<String>,
    /// The time after which the roles may decide.
    due_at: Time,
    /// When the call was escalated: from then on the roles see it and may decide it.
    escalated_at: Option<Time>,
}

impl CannotApprove {
    fn of(obstacle: &Obstacle) -> Self {
        Self { code: obstacle.kind().into(), message: obstacle.sentence() }
    }
}

impl HeadlinePart {
    fn of(piece: &Piece<String>) -> Self {
        match piece.clone() {
            Piece::Text(text) => Self { text: Some(text), value: None },
            Piece::Value(value) => Self { text: None, value: Some(value) },
        }
    }
}

impl EscalationView {
    fn of(escalation: &Escalation) -> Self {
        let Escalation { to, due, at } = escalation.clone();
        Self { roles: to, due_at: due.into(), escalated_at: at.map(Time::from) }
    }
}

impl ApprovalView {
    pub(in crate::http) fn of(seen: &VisibleCall, status: DecisionStatus<'_>, gate: &Gate) -> Self {
        let DecisionStatus { tool, headline, card_parts, can_decide, can_reject, .. } = status;
        let DecisionStatus { obstacle, can_edit, can_remember, on_behalf_of, required, approved_by, .. } =
            status;
        let pieces = headline.as_ref().map(FilledHeadline::pieces);
        let schema = tool.map(|tool| tool.spec.input_schema.as_object().cloned().unwrap_or_default());
        Self {
            tool_call: CallView::of(&seen.call, &seen.thread, gate),
            requested_by: seen.thread.actor(),
            thread_title: seen.thread.title.clone(),
            headline_parts: pieces.map(|pieces| pieces.iter().map(HeadlinePart::of).collect()),
            headline: headline.map(|headline| headline.to_string()),
            card_parts: card_parts.into_iter().map(Word).collect(),
            tool_description: tool.map(|tool| tool.spec.description.clone()),
            input_schema: schema.map(JsonObject),
            constants: tool.and_then(|tool| tool.spec.constants()).map(JsonObject),
            mcp: tool.and_then(|tool| tool.remote.as_ref()).map(McpToolView::of),
            can_decide,
            cannot_approve: obstacle.as_ref().map(CannotApprove::of),
            can_edit,
            can_remember,
            can_reject,
            on_behalf_of,
            remind_at: seen.call.remind_at.map(Time::from),
            escalation: seen.call.escalation.as_ref().map(EscalationView::of),
            required: required.try_into().unwrap_or(u64::MAX),
            approved_by,
        }
    }
}

/// The parameters of a request that lists calls, not yet validated.
#[derive(Debug)]
struct ListQuery {
    state: Option<Text<CallState>>,
    tool_name: Option<String>,
    /// The text of a search.
    q: Option<Text<Searched>>,
    cursor: Option<Id>,
    page_size: Option<RequestedSize>,
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("listApprovals", &[User]),
    ("listThreadApprovals", &[Owner, Approver, Delegate, Operator]),
    ("listSessionApprovals", &[Owner, Approver, Delegate, Operator]),
];

pub(in crate::http) struct Inbox(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Approvals")]
impl Inbox {
    /// List held calls of all threads, newest first
    ///
    /// Returns the calls of the caller's threads, the calls of tools whose calls the caller may approve, and the calls
    /// that are delegated to the caller.
    /// An operator gets all calls of the tenant.
    #[oai(path = "/approvals", method = "get", operation_id = "listApprovals")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn list(
        &self,
        caller: Caller,
        /// The state of the calls: any state of a call; `pending` if absent.
        state: Query<Option<Text<CallState>>>,
        /// Only calls of this tool.
        tool_name: Query<Option<String>>,
        /// Only calls of this session: its id, or the caller's own name for its root thread.
        session_id: Query<Option<ThreadRef>>,
        /// Only calls with this text in the name of the tool, the user, the title of the thread or the id of the call,
        /// in any case: at most 200 characters. Searches the newest 5000 held calls of the tenant in that state.
        q: Query<Option<Text<Searched>>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Id>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let session = self.0.selected_thread(&caller, session_id.0.as_ref()).await?;
        let scope = session.map_or(CallScope::Anywhere, CallScope::Session);
        let (state, tool_name, q, cursor, page_size) = (state.0, tool_name.0, q.0, cursor.0, page_size.0);
        let query = ListQuery { state, tool_name, q, cursor, page_size };
        let listing = query.listing(scope, &self.0)?;
        let results = Paged::new(self.0.rates.in_flight.page(&caller.0).await?);
        self.page(results, &self.0.store.read().await?, &caller.0, &listing).await
    }

    /// List held calls of a thread, newest first
    ///
    /// The thread's user and operators get all calls. Other callers get the calls of tools whose calls they
    /// may approve, and 404 if the thread never had such a call.
    #[oai(path = "/threads/:thread_id/approvals", method = "get", operation_id = "listThreadApprovals")]
    async fn of_thread(
        &self,
        caller: Caller,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
        /// The state of the calls: any state of a call; `pending` if absent.
        state: Query<Option<Text<CallState>>>,
        /// Only calls of this tool.
        tool_name: Query<Option<String>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Id>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let (state, tool_name, cursor, page_size) = (state.0, tool_name.0, cursor.0, page_size.0);
        let query = &ListQuery { state, tool_name, q: None, cursor, page_size };
        let page = async |id| self.page_of(&caller.0, CallScope::Thread(id), query).await;
        self.0.with_thread(&caller, &thread_id, page).await
    }

    /// List held calls of a session, newest first
    ///
    /// Returns the calls of the root thread and of all threads below it, under the rules for a thread.
    #[oai(path = "/sessions/:session_id/approvals", method = "get", operation_id = "listSessionApprovals")]
    async fn of_session(
        &self,
        caller: Caller,
        /// The id of the session, or the caller's own name for its root thread.
        session_id: Path<ThreadRef>,
        /// The state of the calls: any state of a call; `pending` if absent.
        state: Query<Option<Text<CallState>>>,
        /// Only calls of this tool.
        tool_name: Query<Option<String>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Id>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let (state, tool_name, cursor, page_size) = (state.0, tool_name.0, cursor.0, page_size.0);
        let query = &ListQuery { state, tool_name, q: None, cursor, page_size };
        let page = async |id| self.page_of(&caller.0, CallScope::Session(id), query).await;
        self.0.with_thread(&caller, &session_id, page).await
    }
}

impl Inbox {
    /// Returns a page of the calls in a named thread or session. The caller must be allowed to see that
    /// thread or session.
    async fn page_of(
        &self,
        principal: &Principal,
        scope: CallScope,
        query: &ListQuery,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let listing = query.listing(scope, &self.0)?;
        let results = Paged::new(self.0.rates.in_flight.page(principal).await?);
        let (read, visibility) = (self.0.store.read().await?, self.0.approvals.visibility(principal));
        if !read.is_visible(principal, &visibility, scope).await? {
            return Err(ApiError::not_found());
        }
        self.page(results, &read, principal, &listing).await
    }

    async fn page(
        &self,
        results: Paged<ApprovalView>,
        read: &Read,
        principal: &Principal,
        listing: &Listing<'_>,
    ) -> Result<Paged<ApprovalView>, ApiError> {
        let approvals = &self.0.approvals;
        let gate = approvals.gate();
        let page = read.visible_holds(principal, &approvals.visibility(principal), listing).await?;
        let blocked = approvals.blocked(read, &gate, &page.items).await?;
        Ok(results.of_rows(&page, |seen| {
            let status = approvals.decision_status(&gate, principal, seen, &blocked);
            (seen.call.id.to_string(), ApprovalView::of(seen, status, &gate))
        }))
    }
}

impl ListQuery {
    fn listing(&self, scope: CallScope, api: &Api) -> Result<Listing<'_>, ApiError> {
        let state = self.state.as_deref().map_or(Some(StateKind::Pending), StateKind::of_word);
        let state = state.ok_or_else(|| {
            ApiError::bad_request(format!("state: expected one of {}", CALL_STATES.join(", ")))
        })?;
        let tool = self.tool_name.as_deref();
        if tool.is_some_and(|name| name.contains('\0')) {
            return Err(ApiError::bad_request("tool_name: expected the name of a tool"));
        }
        let q = self.q.as_deref().unwrap_or_default();
        if q.chars().count() > SEARCH_CHARS || q.contains('\0') {
            return Err(ApiError::bad_request(format!("q: expected at most {SEARCH_CHARS} characters")));
        }
        let text = Some(q.trim()).filter(|text| !text.is_empty());
        let before = self.cursor.as_ref().map(|cursor| cursor.parse::<ToolCallId>()).transpose();
        let before = before.map_err(|_| ApiError::bad_request("cursor: expected a next_cursor"))?;
        Ok(Listing { scope, state, tool, text, before, page: api.page(page_size(self.page_size)?) })
    }
}
