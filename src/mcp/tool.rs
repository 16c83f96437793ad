//! A tool of a server.

use super::Link;
use super::connection::Called;
use crate::domain::owner::{Owner, RemoteWork};
use crate::tools::request_answer::time_without_waits;
use crate::tools::{DynTool, Permit, ToolError, ToolSpec};
use futures::FutureExt;
use futures::future::BoxFuture;
use rmcp::model::CallToolRequestParams;
use serde_json::Value;
use std::sync::Arc;

pub(super) struct McpTool {
    pub(super) spec: ToolSpec,
    /// The name at the server.
    pub(super) name: String,
    pub(super) link: Arc<Link>,
}

impl McpTool {
    async fn execute(&self, permit: Permit) -> Result<Value, ToolError> {
        let cancellation = permit.cancellation();
        if cancellation.is_cancelled() {
            return Err(ToolError::new("it was stopped before it began; it did not run"));
        }
        let connection = self.link.connection.lock().clone();
        let Some(connection) = connection else {
            return Err(ToolError::new("its server is not connected; the tool did not run"));
        };
        let params = CallToolRequestParams::new(self.name.clone()).with_arguments(permit.input().clone());
        // A dropped call tells the server that the answer is not wanted any more.
        tokio::select! {
            biased;
            answered = connection.call(params, permit.request_sender()) => match answered? {
                Called::Result(output) => Ok(output),
                Called::Next(next) => {
                    let work = RemoteWork { server: self.link.server.clone(), next };
                    Err(ToolError::accepted(Owner { within: self.link.result_deadline, work: Some(work) }))
                }
            },
            () = time_without_waits(self.link.timeout, permit.waited()) => Err(ToolError::outcome_unknown()),
            () = cancellation.cancelled() => Err(ToolError::outcome_unknown()),
        }
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
