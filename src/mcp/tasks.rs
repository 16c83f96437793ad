//! Tasks of a server: calls that the server continues after its answer (`io.modelcontextprotocol/tasks`).

use super::connection::Connection;
use super::elicitation::{question, result};
use super::{Link, output};
use crate::domain::owner::TaskId;
use crate::domain::tool_request::Answer;
use crate::tools::remote_tasks::{Polled, TaskServer};
use futures::FutureExt;
use futures::future::BoxFuture;
use rmcp::model::{
    CallToolResult, DetailedTask, ErrorCode, InputRequest, InputRequests, InputResponses, JsonObject,
    TaskPayload,
};
use rmcp::{ErrorData, ServiceError};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of open questions of a task that are read at once.
const ASKS_MAX: usize = 16;
/// Maximum length of the key of a question, in bytes.
const KEY_BYTES_MAX: usize = 1024;

impl Link {
    fn connected(&self) -> Option<Arc<Connection>> {
        self.connection.lock().clone()
    }
}

impl TaskServer for Link {
    fn poll<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Polled> {
        async move {
            let Some(connection) = self.connected() else { return Polled::Unanswered };
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

    fn answer<'a>(&'a self, id: &'a TaskId, answers: Vec<(String, Answer)>) -> BoxFuture<'a, ()> {
        async move {
            let Some(connection) = self.connected() else { return };
            let responses = answers
                .into_iter()
                .filter_map(|(key, it)| Some((key, serde_json::to_value(result(it)).ok()?)));
            let responses: InputResponses = responses.collect();
            if connection.update_task(id, responses).await.is_err() {
                tracing::warn!(server = self.server, "an MCP server did not take an answer to its task");
            }
        }
        .boxed()
    }

    fn cancel<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, ()> {
        async move {
            let Some(connection) = self.connected() else { return };
            if connection.cancel_task(id).await.is_err() {
                tracing::warn!(server = self.server, "an MCP server did not take the cancel of its task");
            }
        }
        .boxed()
    }
}

fn polled(task: DetailedTask) -> Polled {
    let again = task.task.poll_interval_ms.map(Duration::from_millis);
    match task.payload {
        TaskPayload::Completed { result } => {
            let result = serde_json::from_value::<CallToolResult>(Value::Object(result));
            match result {
                Ok(result) => Polled::Ended(output::outcome(result)),
                Err(_) => {
                    tracing::warn!("the result of a task cannot be read");
                    Polled::Unknown
                }
            }
        }
        TaskPayload::Failed { error } => Polled::Ended(Err(reason(&error))),
        TaskPayload::Cancelled => Polled::Ended(Err("its server cancelled it".to_owned())),
        TaskPayload::InputRequired { input_requests } => asked(input_requests, again),
        _ => Polled::Open { asks: Vec::new(), is_stuck: false, again },
    }
}

/// Returns the questions of a task. What is no elicitation leaves the task stuck.
fn asked(requests: InputRequests, again: Option<Duration>) -> Polled {
    let (mut asks, mut is_stuck) = (Vec::new(), false);
    for (key, request) in requests.into_iter().take(ASKS_MAX) {
        match request {
            InputRequest::Elicitation(form) => {
                let storable = key.len() <= KEY_BYTES_MAX && !key.contains('\0');
                let question = question(form.params).filter(|_| storable);
                asks.push((key, question));
            }
            _ => is_stuck = true,
        }
    }
    Polled::Open { asks, is_stuck, again }
}

/// Returns the reason in the error of a failed task.
fn reason(error: &JsonObject) -> String {
    let message = error.get("message").and_then(Value::as_str).filter(|message| !message.trim().is_empty());
    message.unwrap_or("its server reported that it failed, and not why").to_owned()
}
