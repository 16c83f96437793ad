//! A tool of a server.

use crate::mcp::client::failure::{Failure, RefusedConnection};
use crate::mcp::client::link::Connected;
use crate::mcp::client::link::Link;
use crate::mcp::client::session::connection::{Called, Connection};
use crate::tools::remote_work::SentCall;
use crate::tools::request_answer::time_without_waits;
use crate::tools::{DynTool, Permit, ToolError, ToolSpec};
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint_core::owner::{Owner, RemoteWork};
use holdpoint_store::permit::Conversation;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a call waits for the next connection to its server.
const NEXT_SESSION: Duration = Duration::from_secs(30);

pub(in crate::mcp) struct McpTool {
    pub(in crate::mcp) spec: ToolSpec,
    /// The name at the server.
    pub(in crate::mcp) name: String,
    pub(in crate::mcp) definition_hash: String,
    pub(in crate::mcp) link: Arc<Link>,
}

impl McpTool {
    async fn execute(&self, permit: Permit) -> Result<Value, ToolError> {
        let cancellation = permit.cancellation();
        if cancellation.is_cancelled() {
            return Err(ToolError::new("it was stopped before it began; it did not run"));
        }
        let conversation = permit.conversation();
        let begun = tokio::select! {
            biased;
            begun = self.link.connection_of(&conversation) => begun,
            () = cancellation.cancelled() => {
                return Err(ToolError::new("it was stopped before it began; it did not run"));
            }
        };
        let Some(connection) = begun? else {
            return Err(ToolError::new("its server is not connected; the tool did not run"));
        };
        // A dropped call tells the server that the answer is not wanted any more.
        tokio::select! {
            biased;
            answered = self.call(connection, &permit, &conversation) => match answered? {
                Called::Result(output) => Ok(output),
                Called::Next(next) => {
                    let work = RemoteWork { server: self.link.server.clone(), next };
                    Err(ToolError::accepted(Owner { within: self.link.result_deadline, work: Some(work) }))
                }
            },
            () = time_without_waits(self.link.limit, permit.waited()) => Err(ToolError::outcome_unknown()),
            () = cancellation.cancelled() => Err(ToolError::outcome_unknown()),
        }
    }
}

impl McpTool {
    /// Calls the tool. A server that refuses the request because its session has ended, or because of credentials that have
    /// changed in their file, has not executed it: it gets the request once more, over the next connection.
    async fn call(
        &self,
        connection: Arc<Connection>,
        permit: &Permit,
        conversation: &Conversation,
    ) -> Result<Called, ToolError> {
        let (tool_call_id, input) = (permit.tool_call_id(), permit.input());
        let params = || self.link.params(&self.name, SentCall { tool_call_id, conversation, input });
        let refused = match connection.call(params(), permit.request_sender()).await {
            Ok(called) => return Ok(called),
            Err(Failure::Error(error)) => return Err(error),
            Err(Failure::Connection(refused)) => refused,
        };
        if refused == RefusedConnection::Credentials && !self.link.has_header_files {
            return Err(refused.into_error());
        }
        let Some(next) = self.next_of(&connection).await else { return Err(refused.into_error()) };
        // The approval was for this definition.
        if next.definitions.get(&self.name) != Some(&self.definition_hash) {
            return Err(ToolError::new("its definition has changed; the tool did not run"));
        }
        let connection = next.of(conversation).await?;
        match connection.call(params(), permit.request_sender()).await {
            Ok(called) => Ok(called),
            Err(Failure::Error(error)) => Err(error),
            Err(Failure::Connection(refused)) => Err(refused.into_error()),
        }
    }

    /// Returns the connection after this one. The session of a caller begins again without the one that lists the tools.
    async fn next_of(&self, connection: &Arc<Connection>) -> Option<Connected> {
        let mut connections = self.link.connection.subscribe();
        let is_next = |now: &Option<Connected>| {
            now.as_ref()
                .is_some_and(|now| now.sessions.is_some() || !Arc::ptr_eq(&now.connection, connection))
        };
        let next = timeout(NEXT_SESSION.min(self.link.timeout / 2), connections.wait_for(is_next)).await;
        next.ok().and_then(Result::ok).and_then(|next| next.clone())
    }
}

impl DynTool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        self.execute(permit).boxed()
    }
}
