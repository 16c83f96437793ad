//! Turns as JSON, for clients that read no stream.

use crate::chat::{Action, ThreadName, TurnRequest};
use crate::http::Api;
use crate::http::access::{Access, CallerKind::Owner};
use crate::http::approvals::inbox::ApprovalView;
use crate::http::auth::Caller;
use crate::http::body::formats::{Id, Text};
use crate::http::body::payload::{Json, Tag};
use crate::http::body::posted::Bounds;
use crate::http::body::strict::Strict;
use crate::http::body::thread_ref::{ClientName, ThreadRef, checked_key};
use crate::http::body::word::Word;
use crate::http::failure::error::ApiError;
use crate::http::routes::runs::FailureView;
use crate::http::routes::threads::MessageView;
use holdpoint_core::call::StateKind;
use holdpoint_core::id::RunId;
use holdpoint_core::run::{RunOptions, RunStatus};
use holdpoint_store::{CallScope, Listing};
use holdpoint_stream::ClientTraits;
use poem::Request;
use poem_openapi::param::{Header, Path};
use poem_openapi::types::Example;
use poem_openapi::{Object, OpenApi};
use serde::Deserialize;

/// Maximum number of pending calls in a response.
const PENDING_MAX: u64 = 200;

/// A turn to run.
#[derive(Debug, Default, Object, Deserialize)]
#[oai(deny_unknown_fields, skip_serializing_if_is_none, example)]
#[serde(deny_unknown_fields)]
struct RunTurn {
    /// The text of a new user message, at most 256 KiB unless `limits.message_bytes` sets another limit.
    /// Absent, null or empty: continue the run after a decision or a failure.
    content: Option<String>,
    /// The model, one of `GET /qa/models`; the default model if absent.
    model: Option<String>,
    /// The names of the tools that the model may see, of `GET /tools`; all if absent.
    tool_selection: Option<Vec<String>>,
}

impl Example for RunTurn {
    fn example() -> Self {
        Self { content: Some("delete notes.txt".to_owned()), ..Self::default() }
    }
}

/// A turn at its end: the status of the run and the answer so far, with its calls. With `waiting`, calls are held, or a
/// sub-agent works. With `running`, the turn continues in another process, or another turn has started.
#[derive(Debug, Object)]
#[oai(rename = "Turn", skip_serializing_if_is_none)]
struct TurnView {
    /// The thread of the turn, by its id.
    thread_id: Id,
    /// The run that answers the user message.
    run_id: Id,
    status: Word<RunStatus>,
    message: MessageView,
    /// The pending calls of the run, newest first, as the approval lists have them: at most 200. Those of
    /// sub-agents are in the list of the session.
    pending: Vec<ApprovalView>,
    error: Option<FailureView>,
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[("runTurn", &[Owner])];

pub(in crate::http) struct Turns(pub(in crate::http) Api);

#[OpenApi]
impl Turns {
    /// Run a turn of a thread and return its result
    ///
    /// Like the chat routes, for clients that read no stream: the response comes when the turn ends, that is
    /// when the answer is complete, a call is held, or the run failed. The turn continues if the client
    /// disconnects. Decide held calls with any of the routes for decisions; then post here without `content`
    /// to continue, unless the server resumes the run.
    #[oai(path = "/threads/:thread_id/turns", method = "post", operation_id = "runTurn", tag = "Tag::Chat")]
    async fn run(
        &self,
        request: &Request,
        caller: Caller,
        /// The id of the thread, or the caller's own name for it.
        thread_id: Path<ThreadRef>,
        /// The client's name for the new message: 1 to 64 characters, unique in the thread. A repeated request
        /// adds no second message. It gets the same turn, or the result of that turn.
        #[oai(name = "idempotency-key")]
        idempotency_key: Header<Option<Text<ClientName>>>,
        body: Strict<Option<RunTurn>>,
    ) -> Result<Json<TurnView>, ApiError> {
        let key = checked_key(idempotency_key)?;
        let ask = turn_request(request, body.0.unwrap_or_default(), key)?;
        // Held until the response is ready, like the slot of a stream.
        let _slot = self.0.rates.stream(&caller.0)?;
        let name = ThreadName::Known(thread_id.0.to_string());
        let started = Box::pin(self.0.chat.admit(&caller.0, &name, ask, ClientTraits::NO_CLIENT)).await?;
        started.log.over().await;
        Ok(Json(self.view(&caller, started.run_id).await?))
    }
}

impl Turns {
    /// Returns the state of a run whose turn has ended.
    async fn view(&self, caller: &Caller, run: RunId) -> Result<TurnView, ApiError> {
        let (approvals, gate) = (&self.0.approvals, self.0.approvals.gate());
        let read = self.0.store.read().await?;
        let (run, thread) = read.run(&caller.0, run).await?.ok_or_else(ApiError::not_found)?;
        let message = read.message(&thread, run.assistant_message_id).await?;
        let message = message.ok_or_else(ApiError::not_found)?;
        let scope = CallScope::Thread(thread.id);
        let page = self.0.page(PENDING_MAX);
        let listing =
            Listing { scope, state: StateKind::Pending, tool: None, text: None, before: None, page };
        let held = read.visible_holds(&caller.0, &approvals.visibility(&caller.0), &listing).await?;
        let blocked = approvals.blocked(&read, &gate, &held.items).await?;
        let of_run = held.items.iter().filter(|held| held.call.run_id == run.id);
        let view = |held| {
            let status = approvals.decision_status(&gate, &caller.0, held, &blocked);
            ApprovalView::of(held, status, &gate)
        };
        Ok(TurnView {
            thread_id: Id::of(thread.id),
            run_id: Id::of(run.id),
            status: run.status.into(),
            message: MessageView::of(&message, &thread, &gate),
            pending: of_run.map(view).collect(),
            error: run.error.as_ref().map(FailureView::of),
        })
    }
}

/// Returns the request of the chat that a body makes.
fn turn_request(request: &Request, body: RunTurn, key: Option<String>) -> Result<TurnRequest, ApiError> {
    let RunTurn { content, model, tool_selection } = body;
    let bounds = request.data::<Bounds>().copied().ok_or_else(ApiError::internal)?;
    let action = match content.filter(|text| !text.is_empty()) {
        Some(text) if text.len() > bounds.message_bytes => {
            return Err(ApiError::message_too_long(bounds.message_bytes));
        }
        Some(text) => Action::New { text, client_id: None },
        None => Action::Continue { message: None },
    };
    let options = RunOptions { model, tools: tool_selection, ..RunOptions::default() };
    Ok(TurnRequest { action, options, key, ..TurnRequest::continuation() })
}
