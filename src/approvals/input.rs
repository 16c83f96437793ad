//! Requests of tools that run: a tool asks those that may decide its call, and gets one answer.
//!
//! The request is stored first. The handler of this process is asked about it, and the routes of every process accept
//! an answer. One answer counts: the first, or with a quorum the one that its people agree on. The tool waits in the
//! process that runs it, so the request ends with the execution of the call: the schema withdraws it in the transaction
//! that ends the execution.
//!
//! # One request
//!
//! 1. `mcp` makes a `Question` of a form that a server sends: in an answer to the call (2026-07-28; with a state it is
//!    a round, see `report`), or as a request of its own, which belongs to the only call that is possible when it
//!    arrives. `Permit::ask` makes one of what a tool in Rust asks. `RequestSender`, which has the execution of the
//!    permit, asks through the trait `InputRequests`. [`Approvals`] implements it, and `Executor::run` gives it to the
//!    permit.
//! 2. This module stores the request (`Write::ask`), asks the handler of the process, and looks at the row until it has
//!    an answer, `approval.answer_timeout` is over, or the tool gives up. Meanwhile the heartbeat renews the lease, and
//!    the clocks of the call stop.
//! 3. The route calls `Approvals::answer` in any process. One transaction locks the call under the condition of
//!    visibility, checks the decider as for a decision and the content by the schema, and answers by compare-and-set.
//!    If the call needed several people, `proposals` counts the votes of `tool_request_votes` in that transaction
//!    first: a vote that does not complete the answer is stored, and the request stays open.
//! 4. The trigger `tool_requests_ended` removes what was proposed when the request ends. The trigger
//!    `tool_calls_answered` withdraws what is open when the call leaves `executing`.

use super::handlers::{InputAnswer, InputRequest};
use super::proposals::{Agreement, Proposed};
use super::{Approvals, Decider, Denied, Right, has_denied, own_right};
use crate::agent::{Wait, persist};
use crate::tools::InputError;
use crate::tools::gate::Gate;
use crate::tools::request_answer::errors_in;
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint_core::Principal;
use holdpoint_core::call::{Execution, State};
use holdpoint_core::decision::Choice;
use holdpoint_core::id::{RequestId, ToolCallId};
use holdpoint_core::policy::MayDecide;
use holdpoint_core::tool::tool_request::{Answer, Proposal, Question, Reply, RequestState, ToolRequest};
use holdpoint_store::request_sender::{InputRequests, REQUESTS_MAX};
use holdpoint_store::{RequestEnd, StoreError, StoredRequest, VisibleRequest};
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

/// Maximum length of a message, and of a schema as JSON, in bytes.
const MESSAGE_BYTES_MAX: usize = 4096;
const SCHEMA_BYTES_MAX: usize = 16 * 1024;

/// An accepted answer, or a vote for one.
#[derive(Debug)]
pub(crate) struct AnsweredRequest {
    pub(crate) state: RequestState,
    /// Whether the request had this answer, or this vote, already.
    pub(crate) replayed: bool,
    /// The vote, if more people have to confirm the answer.
    pub(crate) proposed: Option<Proposed>,
}

/// The reason why an answer is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The request has another answer, or ended without one.
    #[error("the request is not open")]
    Closed(RequestState),
    /// The reply confirms a content that is not proposed, or not any more. The request stays open.
    #[error("this content is not proposed")]
    NotProposed,
    /// The content does not fit the schema of the request. The request stays open.
    #[error("the content does not fit the request")]
    InvalidContent(Vec<InputError>),
}

has_denied!(AnswerError);

/// The answers that a principal may give to a request now.
#[derive(Debug)]
pub(crate) struct RequestStatus {
    /// Whether the principal may accept.
    pub(crate) can_accept: bool,
    /// Whether the principal may decline or cancel.
    pub(crate) can_decline: bool,
    /// The number of people that an answer with a content needs.
    pub(crate) required: usize,
    /// What people propose, if the principal may accept.
    pub(crate) proposals: Vec<Proposal>,
}

impl InputRequests for Approvals {
    fn send(&self, of: (ToolCallId, Execution), question: Question) -> BoxFuture<'_, Answer> {
        async move { self.ask_until_dropped(of, None, question).await.unwrap_or(Answer::Cancel) }.boxed()
    }

    fn send_once(
        &self,
        of: (ToolCallId, Execution),
        key: String,
        question: Question,
    ) -> BoxFuture<'_, Option<Answer>> {
        self.ask_until_dropped(of, Some(key), question).boxed()
    }

    fn withdraw(&self, of: (ToolCallId, Execution), key: String) -> BoxFuture<'_, ()> {
        async move {
            let withdraw = async {
                let request = self.store.read_once().await?.request_with(of.0, of.1, &key).await?;
                match request.filter(|request| request.state == RequestState::Open) {
                    Some(request) => self.end_request(&request, RequestState::Withdrawn).await,
                    None => Ok(()),
                }
            };
            if let Err(error) = withdraw.await {
                tracing::warn!(tool_call_id = %of.0, %error, "could not withdraw a request of a tool");
            }
        }
        .boxed()
    }
}

impl Approvals {
    /// Asks people, and returns their answer; `None` if the database failed.
    async fn ask_until_dropped(
        &self,
        of: (ToolCallId, Execution),
        key: Option<String>,
        question: Question,
    ) -> Option<Answer> {
        let (tool_call_id, _) = of;
        let given_up = CancellationToken::new();
        // The task reads and writes the database, and database work must not be dropped midway.
        let _until_dropped = given_up.clone().drop_guard();
        let approvals = self.clone();
        let asking = async move { approvals.ask_people(of, key.as_deref(), question, &given_up).await };
        match self.tasks().spawn(asking.in_current_span()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                tracing::warn!(%tool_call_id, %error, "a tool could not ask");
                None
            }
            Err(_broken) => {
                tracing::error!(%tool_call_id, "the task for a request of a tool failed");
                None
            }
        }
    }

    /// Stores the request of an execution, and waits for the answer until the request expires or the tool gives up. A
    /// request with a key is stored once, and stays open for the next process if this one gives up: `None`.
    async fn ask_people(
        &self,
        of: (ToolCallId, Execution),
        key: Option<&str>,
        question: Question,
        given_up: &CancellationToken,
    ) -> Result<Option<Answer>, StoreError> {
        let schema_bytes = Value::Object(question.schema.clone()).to_string().len();
        if question.message.len() > MESSAGE_BYTES_MAX || schema_bytes > SCHEMA_BYTES_MAX {
            tracing::warn!(tool_call_id = %of.0, "a request of a tool is too long; it is cancelled");
            return Ok(Some(Answer::Cancel));
        }
        // Before the request can be answered, so that no answer of this process is missed.
        let mut wake = self.wake_signal();
        let (write, time) = (self.store.urgent_write().await?, self.approval.answer_timeout);
        let Some(asked) = write.ask(of.0, of.1, question, key, time, REQUESTS_MAX).await? else {
            tracing::warn!(tool_call_id = %of.0, "a call may not ask any more; its request is cancelled");
            return Ok(Some(Answer::Cancel));
        };
        let time = asked.request.expires_at.since(write.now());
        if let Err(error) = write.commit().await {
            if key.is_none() {
                // If the commit was made even so, no person may answer a request that no tool waits for.
                self.end_request(&asked.request, RequestState::Withdrawn).await?;
            }
            return Err(error);
        }
        let (id, thread) = (asked.request.id, asked.thread.id);
        let over = given_up.child_token();
        let _when_ended = over.clone().drop_guard();
        if self.has_handler() && asked.request.state == RequestState::Open {
            let (approvals, asked) = (self.clone(), asked.clone());
            let span = tracing::error_span!("handler", request_id = %id);
            self.tasks()
                .spawn(async move { approvals.ask_handler_for(&asked, &over).await }.instrument(span));
        }
        let mut wait = Wait::until(async {
            tokio::select! {
                () = sleep(time) => {}
                () = given_up.cancelled() => {}
                () = self.tasks().aborted() => {}
            }
        });
        loop {
            match self.end_of_request(id).await {
                Ok(RequestEnd::Answered(answer)) => return Ok(Some(answer)),
                Ok(RequestEnd::Unanswered) => return Ok(Some(Answer::Cancel)),
                Ok(RequestEnd::None) => {}
                // The database may be back at the next look.
                Err(error) => tracing::warn!(request_id = %id, %error, "could not look for an answer"),
            }
            if wait.is_last_look() {
                break;
            }
            wait.for_next_look(wake.woken_in(|woken| woken == thread)).await;
        }
        let gave_up = given_up.is_cancelled() || self.tasks().is_aborted();
        if gave_up && key.is_some() {
            return Ok(None);
        }
        let ended = if gave_up { RequestState::Withdrawn } else { RequestState::Expired };
        self.end_request(&asked.request, ended).await?;
        // An answer may have come just now.
        Ok(Some(match self.end_of_request(id).await? {
            RequestEnd::Answered(answer) => answer,
            RequestEnd::None | RequestEnd::Unanswered => Answer::Cancel,
        }))
    }

    /// Ends a request that is still open. Until then a person could answer it, so the write is retried until the lease
    /// of the call is over, which ends the request too.
    async fn end_request(&self, request: &ToolRequest, ended: RequestState) -> Result<(), StoreError> {
        let end = || async {
            let write = self.store.urgent_write().await?;
            if write.end_request(request, ended).await? {
                write.commit().await?;
            }
            Ok(())
        };
        persist(self.times.lease, end).await?;
        Ok(())
    }

    async fn end_of_request(&self, id: RequestId) -> Result<RequestEnd, StoreError> {
        self.store.read_once().await?.request_end(id).await
    }

    /// Asks the handler about a request, unless the request ends first, and stores the answer.
    async fn ask_handler_for(&self, asked: &StoredRequest, over: &CancellationToken) {
        let request = InputRequest::of(asked);
        let handler = &self.handler;
        let answering = AssertUnwindSafe(async { handler.answer(request).await }).catch_unwind();
        let answer = tokio::select! {
            // The end of the request wins over the answer.
            biased;
            () = over.cancelled() => return,
            () = self.tasks().stopping() => return,
            answer = timeout(self.approval.handler_timeout, answering) => match answer {
                Ok(Ok(Ok(answer))) => answer,
                Ok(Ok(Err(error))) => {
                    tracing::warn!(%error, "the approval handler failed; the request is left to the routes");
                    return;
                }
                Ok(Err(_panic)) => {
                    tracing::error!("the approval handler panicked; the request is left to the routes");
                    return;
                }
                Err(_elapsed) => return,
            },
        };
        let answer = match answer {
            InputAnswer::Accepted { content } => Answer::Accept(content),
            InputAnswer::Declined => Answer::Decline,
            InputAnswer::Cancelled => Answer::Cancel,
            InputAnswer::Deferred => return,
        };
        let (tenant_id, user_id) = (asked.thread.tenant_id.clone(), asked.thread.user_id.clone());
        let requester = Principal { tenant_id, user_id, roles: Vec::new() };
        let actor = super::handlers::actor(self.handler.as_ref());
        let by = Decider::Handler { actor: &actor, requester: &requester };
        match self.answer(by, asked.request.id, &Reply::Give(answer)).await {
            Ok(_) | Err(AnswerError::Closed(_)) => {}
            Err(AnswerError::InvalidContent(errors)) => {
                let pointers: Vec<&str> = errors.iter().map(|error| error.pointer.as_str()).collect();
                tracing::warn!(
                    ?pointers,
                    "the approval handler's answer does not fit; the request is left to the routes"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "the handler's answer was refused; the request is left to the routes");
            }
        }
    }

    /// Answers a request. A decider that may approve its call may accept, and one that may reject the call may decline
    /// or cancel. Where the call needed several people, the content of an answer needs as many.
    pub(crate) async fn answer(
        &self,
        by: Decider<'_>,
        id: RequestId,
        reply: &Reply,
    ) -> Result<AnsweredRequest, AnswerError> {
        if let Decider::Person(principal) = by {
            self.rate_limit.count(principal)?;
        }
        let (gate, visibility) = (self.gate(), self.visibility(by.visible_as()));
        let found = self.store.read_once().await?.any_request(id).await?.ok_or(Denied::NotFound)?;
        // Before the lock: other decisions should not wait until the schema of a tool's server is compiled. The question
        // of a request never changes.
        let errors = match reply {
            Reply::Give(Answer::Accept(content)) => errors_in(content, &found.question.schema),
            // What is confirmed was checked when it was proposed.
            Reply::Give(Answer::Decline | Answer::Cancel) | Reply::Confirm(_) => Vec::new(),
        };
        let write = self.store.urgent_write().await?;
        let locked = write.lock_visible_call(by.visible_as(), &visibility, found.tool_call_id).await?;
        let locked = locked.ok_or(Denied::NotFound)?;
        let choice = match reply.state() {
            RequestState::Accepted => Choice::AS_PROPOSED,
            _ => Choice::Reject { reason: None },
        };
        Self::check_decider(&gate, by, &locked.thread, &locked.call, &choice)
            .map_err(|_| Denied::Forbidden(Right::AnswerRequest))?;
        // As it is with the call locked.
        let request = write.any_request(id).await?.ok_or(Denied::NotFound)?;
        let (actor, votes) = (by.actor(), write.content_votes(id).await?);
        if request.has(reply, &actor, &votes) {
            return Ok(AnsweredRequest { state: request.state, replayed: true, proposed: None });
        }
        if request.state != RequestState::Open {
            return Err(AnswerError::Closed(request.state));
        }
        if request.expires_at <= write.now() {
            return Err(AnswerError::Closed(RequestState::Expired));
        }
        if !errors.is_empty() {
            return Err(AnswerError::InvalidContent(errors));
        }
        let quorum = gate.registry().answer_quorum(&locked.call);
        let (answer, with) = match Self::count_reply(&write, &locked, &request, &votes, quorum, reply, &actor)
            .await?
        {
            Agreement::On(answer, with) => (answer, with),
            Agreement::NotYet { proposed, is_repeated } => {
                write.commit().await?;
                let proposed = Some(proposed);
                return Ok(AnsweredRequest { state: RequestState::Open, replayed: is_repeated, proposed });
            }
        };
        if !write.answer_request(&locked, &request, &answer, &actor, &with).await? {
            return Err(AnswerError::Closed(RequestState::Expired));
        }
        write.commit().await?;
        tracing::info!(request_id = %id, tool_call_id = %request.tool_call_id, ?answer, "a request of a tool is answered");
        self.wake_waiters_in(locked.thread.id);
        Ok(AnsweredRequest { state: answer.state(), replayed: false, proposed: None })
    }

    /// Returns the answers that this principal may give to a request now.
    pub(crate) fn request_status(
        &self,
        gate: &Gate,
        principal: &Principal,
        seen: &VisibleRequest,
    ) -> RequestStatus {
        let VisibleRequest { request, call, thread, votes } = seen;
        let may = own_right(gate, principal, thread, call);
        let is_open = request.state == RequestState::Open && matches!(call.state, State::Executing(..));
        let can_accept = is_open && may == MayDecide::ApproveOrReject;
        let quorum = gate.registry().answer_quorum(call);
        let proposals = Proposal::of(votes, quorum, &thread.actor());
        RequestStatus {
            can_accept,
            can_decline: is_open && may != MayDecide::Nothing,
            required: quorum.people,
            // A proposal is for the tool, and for those that have to confirm it.
            proposals: if can_accept { proposals } else { Vec::new() },
        }
    }
}
