//! Runs tools: executions, previews, and questions about executions that were cut off.
//!
//! This is the one place that runs a tool, and it requires a [`Permit`]. A tool that panics ends nothing else.

use super::gate::Gate;
use super::registry::ExecutionKind;
use super::{IdempotencyKey, Permit, Preview, Requester, ToolError, Verified, Why};
use futures::FutureExt;
use holdpoint_core::call::Outcome;
use holdpoint_core::owner::Owner;
use holdpoint_core::text::model_texts;
use holdpoint_core::tool::assignment::Assignment;
use holdpoint_core::tool::input::Input;
use std::panic::AssertUnwindSafe;

/// What a tool returned.
#[derive(Debug)]
pub(crate) enum Returned {
    Outcome(Outcome),
    /// A service owns the call now, and the outcome comes later.
    Accepted(Owner),
}

impl From<Outcome> for Returned {
    fn from(outcome: Outcome) -> Self {
        Self::Outcome(outcome)
    }
}

impl Gate {
    /// Returns the assignment of the child that executes the permitted call, or the error of a sub-agent that
    /// cannot create one. `None` if the tool executes its calls itself.
    pub(crate) fn assignment(&self, permit: &Permit) -> Option<Result<Assignment, String>> {
        let ExecutionKind::Delegate(agent) = &self.registry.get(permit.tool_name())?.does else {
            return None;
        };
        let made = std::panic::catch_unwind(AssertUnwindSafe(|| agent.assignment(permit.input())));
        Some(match made {
            Ok(made) => made.map_err(|error| error.to_string()),
            Err(_panic) => {
                tracing::error!("the task of a sub-agent panicked");
                Err("the tool broke".to_owned())
            }
        })
    }

    /// Runs the permitted call, without a time limit. A tool that panics may have had its effect, so the
    /// outcome is unknown. The panic ends nothing else.
    pub(crate) async fn run(&self, permit: Permit) -> Returned {
        let tool = match self.registry.get(permit.tool_name()).map(|registered| registered.does.clone()) {
            Some(ExecutionKind::Execute(tool)) => tool,
            Some(ExecutionKind::Delegate(_)) => {
                let why = "a sub-agent does what it is asked; the tool did not run";
                return Outcome::Failed(why.to_owned()).into();
            }
            None => {
                return Outcome::Failed("this server does not have the tool; it did not run".to_owned())
                    .into();
            }
            Some(ExecutionKind::Worker(_)) => {
                let why = "a worker executes the call; the tool did not run";
                return Outcome::Failed(why.to_owned()).into();
            }
        };
        let ran = AssertUnwindSafe(async move { tool.execute(permit).await }).catch_unwind().await;
        let outcome = match ran {
            Ok(Ok(output)) => self.succeeded(output),
            Ok(Err(ToolError(Why::Accepted(owner)))) => return Returned::Accepted(owner),
            Ok(Err(error)) => error.outcome().unwrap_or(Outcome::Lost),
            Err(_panic) => {
                tracing::error!("a tool panicked");
                Outcome::Interrupted
            }
        };
        outcome.into()
    }

    /// Asks a tool about the outcome of a call that was cut off. `None` if the tool does not know the
    /// outcome, or fails to report it now. `NeverHappened` counts only from a tool with the schema of the
    /// call: another tool of the same name may ask another service.
    pub(crate) async fn verify(
        &self,
        tool_name: &str,
        schema_hash: &str,
        key: &IdempotencyKey,
    ) -> Option<Outcome> {
        let registered = self.registry.get(tool_name)?;
        let ExecutionKind::Execute(tool) = registered.does.clone() else { return None };
        let same = registered.schema_hash == schema_hash;
        let verification = AssertUnwindSafe(async { tool.verify(key).await }).catch_unwind();
        match tokio::time::timeout(self.settings.timeout, verification).await {
            Ok(Ok(Ok(Verified::Happened(output)))) => Some(self.succeeded(output)),
            Ok(Ok(Ok(Verified::NeverHappened))) => {
                same.then(|| Outcome::Failed(model_texts::NEVER_HAPPENED.to_owned()))
            }
            Ok(Ok(Ok(Verified::Unknown))) => None,
            // The text of the error must not reach a log.
            Ok(Ok(Err(_))) => {
                tracing::debug!(tool_call_id = %key, "a tool failed to verify the outcome of a call");
                None
            }
            Ok(Err(_panic)) => {
                tracing::error!(tool_call_id = %key, "a tool panicked while verifying the outcome of a call");
                None
            }
            Err(_elapsed) => {
                tracing::warn!(tool_call_id = %key, "a tool timed out while verifying the outcome of a call");
                None
            }
        }
    }

    /// Asks a tool what a call with these inputs would do, on behalf of this user. A tool that fails has a
    /// failed preview.
    pub(crate) async fn preview(&self, tool_name: &str, input: &Input, requester: &Requester) -> Preview {
        let tool = self.registry.get(tool_name).filter(|tool| tool.spec.preview);
        let Some(ExecutionKind::Execute(tool)) = tool.map(|tool| &tool.does) else {
            return Preview::failed("the tool has no previews any more");
        };
        let preview = AssertUnwindSafe(async { tool.preview(input, requester).await }).catch_unwind();
        match tokio::time::timeout(self.settings.preview_timeout, preview).await {
            Ok(Ok(Ok(text))) => Preview::text(&text),
            Ok(Ok(Err(ToolError(Why::OutcomeUnknown)))) => Preview::failed("the tool did not say why"),
            Ok(Ok(Err(error))) => Preview::failed(&error.to_string()),
            Ok(Err(_panic)) => {
                tracing::error!(tool = tool_name, "a tool panicked in its preview");
                Preview::failed("the tool broke")
            }
            Err(_elapsed) => {
                tracing::warn!(tool = tool_name, "a tool timed out in its preview");
                Preview::failed("the tool did not say it in time")
            }
        }
    }
}
