//! Calls that continue after the answer of their server: as a task (`io.modelcontextprotocol/tasks`), or with a round of
//! answers.

use crate::mcp::client::failure::{self, Failure};
use crate::mcp::client::link::Link;
use crate::mcp::client::message::output;
use crate::mcp::client::message::readable;
use crate::mcp::client::session::connection::{Called, Connection};
use crate::mcp::client::session::elicitation::{is_storable, question, responses};
use crate::tools::ToolError;
use crate::tools::remote_work::{Polled, RemoteServer, RepeatAnswer, SentCall};
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint_core::call::Outcome;
use holdpoint_core::card::progress::Progress;
use holdpoint_core::owner::{InputRound, TaskId};
use holdpoint_core::tool::tool_request::{Answer, Question};
use holdpoint_store::permit::Conversation;
use rmcp::model::{
    CallToolRequestParams, DetailedTask, ErrorCode, InputRequest, InputRequests, JsonObject,
    RequestMetaObject, TaskPayload,
};
use rmcp::{ErrorData, ServiceError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The key in `_meta` of a call under which its user and its conversation are.
const IDENTITY: &str = "holdpoint/identity";
/// Maximum number of open questions of a task that are read at once.
const ASKS_MAX: usize = 16;

impl Link {
    /// Returns the connection for the calls of this conversation, if the server is connected now. After an error nothing was
    /// sent.
    pub(in crate::mcp) async fn connection_of(
        &self,
        conversation: &Conversation,
    ) -> Result<Option<Arc<Connection>>, ToolError> {
        let connected = self.connection.borrow().clone();
        match connected {
            Some(connected) => connected.of(conversation).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the parameters of a call. They name the user and the conversation if the operator wants that.
    pub(in crate::mcp) fn params(&self, tool: &str, call: SentCall<'_>) -> CallToolRequestParams {
        let SentCall { tool_call_id, conversation, input } = call;
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input.clone());
        if self.identity {
            let Conversation { requester, thread_id, session_id, run_id } = conversation;
            let identity = json!({
                "tenant_id": requester.tenant_id(),
                "user_id": requester.user_id(),
                "thread_id": thread_id,
                "session_id": session_id,
                "run_id": run_id,
                "idempotency_key": tool_call_id,
            });
            let meta = params.meta.get_or_insert_with(RequestMetaObject::default);
            meta.insert(IDENTITY.to_owned(), identity);
        }
        params
    }
}

impl RemoteServer for Link {
    fn poll<'a>(&'a self, id: &'a TaskId, of: &'a Conversation) -> BoxFuture<'a, Polled> {
        async move {
            let Ok(Some(connection)) = self.connection_of(of).await else { return Polled::Unanswered };
            match connection.task(id).await {
                Ok(task) => polled(task),
                // The server has answered that there is no such task.
                Err(ServiceError::McpError(ErrorData {
                    code: ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND,
                    ..
                })) => Polled::Unknown,
                Err(_error) => Polled::Unanswered,
            }
        }
        .boxed()
    }

    fn answer<'a>(
        &'a self,
        id: &'a TaskId,
        of: &'a Conversation,
        answers: Vec<(String, Answer)>,
    ) -> BoxFuture<'a, ()> {
        async move {
            let Ok(Some(connection)) = self.connection_of(of).await else { return };
            if connection.update_task(id, responses(answers)).await.is_err() {
                tracing::warn!(server = self.server, "an MCP server did not take an answer to its task");
            }
        }
        .boxed()
    }

    fn cancel<'a>(&'a self, id: &'a TaskId, of: &'a Conversation) -> BoxFuture<'a, ()> {
        async move {
            let Ok(Some(connection)) = self.connection_of(of).await else { return };
            if connection.cancel_task(id).await.is_err() {
                tracing::warn!(server = self.server, "an MCP server did not take the cancel of its task");
            }
        }
        .boxed()
    }

    fn takes_rounds<'a>(&'a self, of: &'a Conversation) -> BoxFuture<'a, bool> {
        async move { matches!(self.connection_of(of).await, Ok(Some(connection)) if connection.has_rounds()) }
            .boxed()
    }

    fn send_again<'a>(
        &'a self,
        call: SentCall<'a>,
        round: &'a InputRound,
        answers: BTreeMap<String, Answer>,
    ) -> BoxFuture<'a, RepeatAnswer> {
        async move {
            let Ok(Some(connection)) = self.connection_of(call.conversation).await else {
                return RepeatAnswer::Unknown;
            };
            if !connection.has_rounds() {
                return RepeatAnswer::Unknown;
            }
            let mut params = self.params(&round.tool, call);
            params.input_responses = Some(responses(answers));
            params.request_state = round.state.clone();
            match timeout(self.timeout, connection.call_again(params, round.number)).await {
                Ok(Ok(Called::Result(output))) => RepeatAnswer::Ended(output),
                Ok(Ok(Called::Next(next))) => RepeatAnswer::Next(next),
                Ok(Err(Failure::Error(error))) => match error.outcome() {
                    Some(outcome @ (Outcome::Failed(_) | Outcome::InterruptedWith(_))) => {
                        RepeatAnswer::Failed(outcome)
                    }
                    _ => RepeatAnswer::Unknown,
                },
                Ok(Err(Failure::Connection(_))) => RepeatAnswer::Unknown,
                Err(_elapsed) => RepeatAnswer::Unknown,
            }
        }
        .boxed()
    }
}

fn polled(task: DetailedTask) -> Polled {
    let again = task.task.poll_interval_ms.map(Duration::from_millis);
    let progress = Progress::new(task.task.status_message.as_deref(), None, None);
    match task.payload {
        TaskPayload::Completed { result } => Polled::Ended(output::outcome(readable::result(result))),
        TaskPayload::Failed { error } => Polled::Ended(Err(reason(&error))),
        TaskPayload::Cancelled => Polled::Ended(Err("its server cancelled it".to_owned())),
        TaskPayload::InputRequired { input_requests } => {
            let (asks, is_stuck) = asked(input_requests);
            Polled::Open { asks, is_stuck, again, progress }
        }
        _ => Polled::Open { asks: Vec::new(), is_stuck: false, again, progress },
    }
}

/// Returns the questions of a task, and whether it is stuck: at what is no elicitation.
fn asked(requests: InputRequests) -> (Vec<(String, Option<Question>)>, bool) {
    let (mut asks, mut is_stuck) = (Vec::new(), false);
    for (key, request) in requests.into_iter().take(ASKS_MAX) {
        match request {
            InputRequest::Elicitation(form) => {
                let question = question(form.params).filter(|_| is_storable(&key));
                asks.push((key, question));
            }
            _ => is_stuck = true,
        }
    }
    (asks, is_stuck)
}

/// Returns the reason in the error of a failed task.
fn reason(error: &JsonObject) -> String {
    let message = error.get("message").and_then(Value::as_str).filter(|message| !message.trim().is_empty());
    let Some(message) = message else { return "its server reported that it failed, and not why".to_owned() };
    failure::message(&ErrorData::new(
        ErrorCode::INTERNAL_ERROR,
        message.to_owned(),
        error.get("data").cloned(),
    ))
}
