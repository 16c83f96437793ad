//! Requests of executing calls to people. A request is open while its tool waits. One guarded statement answers it, and
//! the schema ends it with the execution of its call.

use crate::decision::inbox::{of_viewer, sorted};
use crate::decision::opened::to_roles_of;
use crate::entity::{escalation, thread, tool_call, tool_request};
use crate::event::new_event::Subject;
use crate::sql::newest::{BYTES, Branch, ID, in_order};
use crate::sql::words::literal;
use crate::thread::threads::of_tenant;
use crate::{CallScope, LockedCall, LockedRow, Page, Read, StoreError, Thread, Visibility, Write, sql::rows};
use holdpoint_core::Principal;
use holdpoint_core::call::{Execution, StateKind, ToolCall};
use holdpoint_core::clock::Timestamp;
use holdpoint_core::event::{EventType, system};
use holdpoint_core::event_data::{EventData, RequestStep};
use holdpoint_core::id::{RequestId, ToolCallId};
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::tool_request::{Answer, ContentVote, Question, RequestState, ToolRequest};
use sea_orm::ActiveValue::Set;
use sea_orm::sea_query::{Expr, ExprTrait, Query, SelectStatement, SimpleExpr};
use sea_orm::{ColumnTrait, Condition, EntityName, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

const TABLE: &str = "tool_requests";
/// The id of a request, as an expression that no index has.
const BY_REQUEST: &str = "tool_requests.request_id || ''";

#[derive(Debug)]
pub struct RequestListing {
    /// Where the calls of the requests are.
    pub scope: CallScope,
    pub state: RequestState,
    /// Only requests before this one.
    pub before: Option<RequestId>,
    /// Maximum number of requests.
    pub size: u64,
}

/// A visible request, with its call and the thread of the call. This gives the viewer no right to read anything else
/// of the thread.
#[derive(Debug)]
pub struct VisibleRequest {
    pub request: ToolRequest,
    /// The call that waits for the answer.
    pub call: ToolCall,
    pub thread: Thread,
    /// The votes about the content of an answer, if the request is open, oldest first.
    pub votes: Vec<ContentVote>,
}

/// What became of a request.
#[derive(Debug)]
pub enum RequestEnd {
    /// The request is open.
    None,
    Answered(Answer),
    /// It ended without an answer.
    Unanswered,
}

/// A request that a transaction stores.
#[derive(Debug, Clone)]
pub struct StoredRequest {
    pub request: ToolRequest,
    /// The call that waits for the answer.
    pub call: ToolCall,
    pub thread: Thread,
}

impl RequestListing {
    /// Selects requests by their ids, at most one more than a page has.
    fn select(&self, which: Condition) -> SelectStatement {
        Query::select()
            .expr_as(tool_request::Column::RequestId.into_expr(), ID)
            .expr_as(Expr::cust("CAST(0 AS BIGINT)"), BYTES)
            .from(tool_request::Entity.table_ref())
            .cond_where(which)
            .limit(self.size.saturating_add(1))
            .to_owned()
    }

    /// Selects requests of this list with their calls and threads.
    fn with_threads(&self, which: Condition) -> SelectStatement {
        let id = tool_request::Column::RequestId;
        let of_call = tool_request::Column::ToolCallId
            .into_expr()
            .equals((tool_call::Entity, tool_call::Column::ToolCallId));
        let of_thread =
            tool_call::Column::ThreadId.into_expr().equals((thread::Entity, thread::Column::ThreadId));
        let which = which
            .add(ExprTrait::eq(tool_request::Column::State.into_expr(), literal(self.state)))
            .add_option(self.before.map(|before| id.lt(before.to_string())));
        self.select(which)
            .inner_join(tool_call::Entity.table_ref(), of_call)
            .inner_join(thread::Entity.table_ref(), of_thread)
            .to_owned()
    }

    /// Selects the newest requests of this list with this value in a column, in the order of the index of that column.
    /// The thread is a subquery, so that the database begins at the requests, whatever its statistics.
    fn newest(&self, principal: &Principal, branch: Branch<tool_request::Column>) -> SelectStatement {
        let of_thread =
            tool_call::Column::ThreadId.into_expr().equals((thread::Entity, thread::Column::ThreadId));
        let of_call = tool_call::Column::ToolCallId
            .into_expr()
            .equals((tool_request::Entity, tool_request::Column::ToolCallId));
        let of_thread = Query::select()
            .column((thread::Entity, thread::Column::ThreadId))
            .from(tool_call::Entity.table_ref())
            .inner_join(thread::Entity.table_ref(), of_thread)
            .cond_where(of_tenant(principal).add(of_call))
            .to_owned();
        let which = Condition::all()
            .add(tool_request::Column::TenantId.eq(&principal.tenant_id))
            .add(SimpleExpr::from(of_thread).is_not_null());
        let mut select = self.select(which);
        if !matches!(branch.column, tool_request::Column::State) {
            select.and_where(ExprTrait::eq(tool_request::Column::State.into_expr(), literal(self.state)));
        }
        let before = self.before.map(|before| before.to_string());
        in_order(&mut select, branch, tool_request::Column::RequestId, before);
        select
    }

    /// Selects the requests of this list whose calls the principal may see.
    fn branches(&self, principal: &Principal, visibility: &Visibility) -> Vec<SelectStatement> {
        let mut visibility = visibility.clone();
        if let Visibility::Approver { delegated_at, .. } = &mut visibility {
            // A delegate decides a held call, and answers no request of the tool that runs after it.
            *delegated_at = None;
        }
        if !matches!(self.scope, CallScope::Anywhere) {
            let seen = of_tenant(principal).add(of_viewer(principal, &visibility));
            let mut select = self.with_threads(seen.add(self.scope.condition()));
            return vec![sorted(&mut select, Expr::cust(BY_REQUEST))];
        }
        let Visibility::Approver { tools, escalated, .. } = visibility else {
            return vec![self.newest(
                principal,
                Branch { column: tool_request::Column::State, value: literal(self.state) },
            )];
        };
        let own = self.newest(
            principal,
            Branch { column: tool_request::Column::UserId, value: Expr::value(&principal.user_id) },
        );
        let of_tools = tools.iter().map(|tool| {
            self.newest(
                principal,
                Branch { column: tool_request::Column::HeldTool, value: Expr::value(tool) },
            )
        });
        let of_roles = (escalated && !principal.roles.is_empty()).then(|| {
            let of_call = escalation::Column::ToolCallId
                .into_expr()
                .equals((tool_request::Entity, tool_request::Column::ToolCallId));
            let mut select = self.with_threads(of_tenant(principal).add(to_roles_of(principal)));
            if self.state == RequestState::Open {
                let executing = literal(StateKind::Executing);
                select.and_where(ExprTrait::eq(escalation::Column::State.into_expr(), executing));
            }
            select.inner_join(escalation::Entity.table_ref(), of_call);
            sorted(&mut select, Expr::cust(BY_REQUEST))
        });
        [own].into_iter().chain(of_tools).chain(of_roles).collect()
    }
}

impl Read {
    /// Returns a request by its id, whatever its owner, for work of the server itself.
    pub async fn any_request(&self, id: RequestId) -> Result<Option<ToolRequest>, StoreError> {
        let found = tool_request::Entity::find_by_id(id.to_string()).one(&self.tx).await?;
        found.map(request).transpose()
    }

    /// Returns the request of an execution with this key at its server.
    pub async fn request_with(
        &self,
        call: ToolCallId,
        execution: Execution,
        key: &str,
    ) -> Result<Option<ToolRequest>, StoreError> {
        let found = tool_request::Entity::find()
            .filter(tool_request::Column::ToolCallId.eq(call.to_string()))
            .filter(tool_request::Column::ExecId.eq(execution.id.to_string()))
            .filter(tool_request::Column::ServerKey.eq(key));
        found.one(&self.tx).await?.map(request).transpose()
    }

    /// Returns what became of a request. The content of an answer is there as long as its call executes.
    pub async fn request_end(&self, id: RequestId) -> Result<RequestEnd, StoreError> {
        let found = tool_request::Entity::find_by_id(id.to_string()).one(&self.tx).await?;
        let Some(row) = found else { return Ok(RequestEnd::Unanswered) };
        Ok(match (rows::word(TABLE, &row.state)?, row.content) {
            (RequestState::Open, _) => RequestEnd::None,
            (RequestState::Accepted, Some(content)) => {
                RequestEnd::Answered(Answer::Accept(rows::json::<Input>(TABLE, &content)?))
            }
            (RequestState::Declined, _) => RequestEnd::Answered(Answer::Decline),
            (RequestState::Cancelled, _) => RequestEnd::Answered(Answer::Cancel),
            (RequestState::Accepted | RequestState::Expired | RequestState::Withdrawn, _) => {
                RequestEnd::Unanswered
            }
        })
    }

    /// Returns the requests of the calls that this principal may see, newest first.
    pub async fn visible_requests(
        &self,
        principal: &Principal,
        visibility: &Visibility,
        listing: &RequestListing,
    ) -> Result<Page<VisibleRequest>, StoreError> {
        let branches = listing.branches(principal, visibility);
        let found = self.newest(&branches, listing.size.saturating_add(1)).await?;
        let Page { items, has_more } = Page::of(found, listing.size);
        let ids: Vec<String> = items.into_iter().map(|(id, _)| id).collect();
        if ids.is_empty() {
            return Ok(Page { items: Vec::new(), has_more });
        }
        let found = tool_request::Entity::find()
            .filter(tool_request::Column::RequestId.is_in(ids))
            .order_by_desc(tool_request::Column::RequestId);
        // A request may have been answered since.
        let is_listed = |row: &tool_request::Model| row.state == listing.state.word();
        let items: Vec<_> = found.all(&self.tx).await?.into_iter().filter(is_listed).collect();
        let of_calls = items.iter().map(|row| row.tool_call_id.clone());
        let calls = tool_call::Entity::find().filter(tool_call::Column::ToolCallId.is_in(of_calls));
        let calls = self.with_threads(calls.all(&self.tx).await?).await?;
        let calls: HashMap<ToolCallId, (ToolCall, Thread)> =
            calls.into_iter().map(|seen| (seen.0.id, seen)).collect();
        let requests = items.into_iter().filter_map(|row| {
            let request = rows::listed(TABLE, &row.request_id.clone(), request(row))?;
            let (call, thread) = calls.get(&request.tool_call_id)?.clone();
            Some(VisibleRequest { request, call, thread, votes: Vec::new() })
        });
        let mut items: Vec<VisibleRequest> = requests.collect();
        let open = items.iter().filter(|seen| seen.request.state == RequestState::Open);
        let mut votes = self.content_votes_of(open.map(|seen| seen.request.id).collect()).await?;
        for seen in &mut items {
            seen.votes = votes.remove(&seen.request.id).unwrap_or_default();
        }
        Ok(Page { items, has_more })
    }
}

impl Write {
    /// Stores a request of an execution, which waits for the answer within this time. If the execution has a request
    /// with this key already, returns that one. Returns `None` if the execution does not hold the call any more, a
    /// cancel is requested, or the call has had this number of requests.
    pub async fn ask(
        &self,
        call: ToolCallId,
        execution: Execution,
        question: Question,
        key: Option<&str>,
        within: Duration,
        requests_max: u64,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let own = execution.id.to_string();
        let holds = |row: &LockedRow| {
            row.call.state == StateKind::Executing.word() && row.call.exec_id.as_ref() == Some(&own)
        };
        let Some(locked) = self.lock_row(call).await?.filter(holds) else { return Ok(None) };
        if let Some(key) = key
            && let Some(request) = self.request_with(call, execution, key).await?
        {
            let LockedRow { call, thread, .. } = locked;
            return Ok(Some(StoredRequest {
                request,
                call: rows::call(call, None)?,
                thread: thread.into_thread(),
            }));
        }
        if locked.call.cancel_requested_at.is_some() {
            return Ok(None);
        }
        let of_call = tool_request::Column::ToolCallId.eq(call.to_string());
        if tool_request::Entity::find().filter(of_call).count(&self.tx).await? >= requests_max {
            return Ok(None);
        }
        let request = ToolRequest {
            id: RequestId::new(self.clock.uuid()),
            tool_call_id: call,
            question,
            state: RequestState::Open,
            created_at: self.now,
            expires_at: self.now.plus(within),
            answered: None,
            content_hash: None,
        };
        let row = tool_request::ActiveModel {
            request_id: Set(request.id.to_string()),
            tool_call_id: Set(call.to_string()),
            tenant_id: Set(locked.call.tenant_id.clone()),
            user_id: Set(locked.thread.user_id.clone()),
            held_tool: Set(locked.call.held.then(|| locked.call.name.clone())),
            exec_id: Set(own),
            server_key: Set(key.map(str::to_owned)),
            kind: Set(request.question.kind.word().to_owned()),
            message: Set(request.question.message.clone()),
            answer_schema: Set(Value::Object(request.question.schema.clone()).to_string()),
            state: Set(request.state.word().to_owned()),
            content: Set(None),
            content_hash: Set(None),
            answered_by: Set(None),
            created_at: Set(request.created_at.as_micros()),
            expires_at: Set(request.expires_at.as_micros()),
            answered_at: Set(None),
            erased_at: Set(None),
        };
        tool_request::Entity::insert(row).exec_without_returning(&self.tx).await?;
        let actor = actor_of(&locked);
        let LockedRow { call, thread, .. } = locked;
        let call = rows::call(call, None)?;
        let requested = EventType::ToolInputRequested;
        self.request_event(requested, &actor, &Subject::call(&thread, &call), &request, RequestStep::Open {});
        Ok(Some(StoredRequest { request, call, thread: thread.into_thread() }))
    }

    /// Answers an open request of a locked call. Returns false if the request is not open any more, or its time is
    /// over. `with` are the others that proposed the same content, if the answer needs several people.
    pub async fn answer_request(
        &self,
        locked: &LockedCall,
        request: &ToolRequest,
        answer: &Answer,
        by: &str,
        with: &[String],
    ) -> Result<bool, StoreError> {
        let content = match answer {
            Answer::Accept(content) => Some(Value::Object(content.clone()).to_string()),
            Answer::Decline | Answer::Cancel => None,
        };
        let answered = tool_request::Entity::update_many()
            .col_expr(tool_request::Column::State, Expr::value(answer.state().word()))
            .col_expr(tool_request::Column::Content, Expr::value(content))
            .col_expr(tool_request::Column::ContentHash, Expr::value(answer.content_hash(request.id)))
            .col_expr(tool_request::Column::AnsweredBy, Expr::value(by))
            .col_expr(tool_request::Column::AnsweredAt, Expr::value(self.now.as_micros()))
            .filter(tool_request::Column::RequestId.eq(request.id.to_string()))
            .filter(tool_request::Column::State.eq(RequestState::Open.word()))
            .filter(tool_request::Column::ExpiresAt.gt(self.now.as_micros()))
            .exec(&self.tx)
            .await?;
        if answered.rows_affected == 0 {
            return Ok(false);
        }
        let all = || with.iter().cloned().chain([by.to_owned()]).collect();
        let confirmed_by = (!with.is_empty()).then(all);
        let ended = RequestStep::Ended { answer: answer.state(), confirmed_by };
        let subject = Subject::call(&locked.thread, &locked.call);
        self.request_event(EventType::ToolInputEnded, by, &subject, request, ended);
        Ok(true)
    }

    /// Ends an open request without an answer: it expired, or the tool does not wait any more.
    pub async fn end_request(&self, request: &ToolRequest, ended: RequestState) -> Result<bool, StoreError> {
        let Some(locked) = self.lock_row(request.tool_call_id).await? else { return Ok(false) };
        let moved = tool_request::Entity::update_many()
            .col_expr(tool_request::Column::State, Expr::value(ended.word()))
            .filter(tool_request::Column::RequestId.eq(request.id.to_string()))
            .filter(tool_request::Column::State.eq(RequestState::Open.word()))
            .exec(&self.tx)
            .await?;
        if moved.rows_affected == 0 {
            return Ok(false);
        }
        let actor = match ended {
            RequestState::Expired => system::EXPIRY.to_owned(),
            _ => actor_of(&locked),
        };
        let LockedRow { call, thread, .. } = locked;
        let call = rows::call(call, None)?;
        let step = RequestStep::Ended { answer: ended, confirmed_by: None };
        let subject = Subject::call(&thread, &call);
        self.request_event(EventType::ToolInputEnded, &actor, &subject, request, step);
        Ok(true)
    }

    /// Adds an event about a request of this call.
    pub(crate) fn request_event(
        &self,
        event: EventType,
        actor: &str,
        subject: &Subject<'_>,
        request: &ToolRequest,
        step: RequestStep,
    ) {
        let Some(call) = &subject.call else { return };
        let (tool_name, kind) = (call.tool.to_owned(), request.question.kind);
        let data = EventData::Request { tool_name, request_id: request.id, kind, step };
        self.event(event, actor, subject, data);
    }
}

/// Returns the actor that let the call run.
fn actor_of(locked: &LockedRow) -> String {
    locked.call.decided_by.clone().unwrap_or_else(|| system::POLICY.to_owned())
}

fn request(row: tool_request::Model) -> Result<ToolRequest, StoreError> {
    let at = row.answered_at.map(Timestamp::from_micros);
    Ok(ToolRequest {
        id: rows::id(TABLE, &row.request_id)?,
        tool_call_id: rows::id(TABLE, &row.tool_call_id)?,
        question: Question {
            kind: rows::word(TABLE, &row.kind)?,
            message: row.message,
            schema: rows::json(TABLE, &row.answer_schema)?,
        },
        state: rows::word(TABLE, &row.state)?,
        created_at: Timestamp::from_micros(row.created_at),
        expires_at: Timestamp::from_micros(row.expires_at),
        answered: row.answered_by.zip(at),
        content_hash: row.content_hash,
    })
}
