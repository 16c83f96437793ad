//! Running what is permitted, and writing down how it went.

use super::heartbeat::{Halt, Heartbeat};
use super::persist::persist;
use super::tasks::{Tasks, Work};
use crate::domain::call::{Execution, Outcome};
use crate::domain::id::ToolCallId;
use crate::domain::permit::Permit;
use crate::domain::turn::Shown;
use crate::metrics::Metrics;
use crate::store::{Store, StoreError};
use crate::tools::gate::Gate;
use std::time::Duration;
use tokio::time::Instant;

/// What runs tools.
#[derive(Debug, Clone)]
pub(crate) struct Executor {
    pub(crate) store: Store,
    pub(crate) gate: Gate,
    pub(crate) tasks: Tasks,
    /// How long an execution may be silent before it is taken for dead.
    pub(crate) lease: Duration,
    pub(crate) metrics: Metrics,
}

impl Executor {
    /// Runs one call and settles it. What a page shows of it, if it could be written; `None` if the call is not
    /// this execution's any more, so that somebody else told how it ended.
    ///
    /// The tool has had its effect by then, so its outcome is not given up for a busy or restarting database: it
    /// is tried until the execution's lease is over.
    pub(crate) async fn run(&self, permit: Permit) -> Result<Option<Shown>, StoreError> {
        let (tool_call_id, execution) = (permit.tool_call_id(), permit.execution());
        let (asked, ran) = (permit.asked().clone(), permit.input().clone());
        let (tool_name, began) = (permit.tool_name().to_owned(), Instant::now());
        let heartbeat = self.keep(tool_call_id, execution);
        let outcome = tokio::select! {
            // What is known is not thrown away.
            biased;
            outcome = self.begin(permit) => outcome,
            () = self.given_up(&heartbeat) => {
                tracing::warn!(%tool_call_id, "a tool was given up");
                Outcome::Interrupted
            }
        };
        self.metrics.tool_ran(&tool_name, began.elapsed());
        drop(heartbeat);
        let result = self.gate.words(&outcome, &asked, &ran);
        let settle = || self.settle(tool_call_id, execution, &outcome, &result);
        let settled = persist(self.lease, settle).await?;
        let shown = match outcome {
            Outcome::Succeeded(output) => Shown::Output(output),
            Outcome::Failed(_) | Outcome::Interrupted => Shown::Error(result),
        };
        // Where a commit that seemed to fail was made, there is nothing left to settle.
        Ok((settled.value || settled.tried_before).then_some(shown))
    }

    async fn begin(&self, permit: Permit) -> Outcome {
        if self.tasks.is_cut() {
            return Outcome::Failed("the server stopped before it began; it did not run".to_owned());
        }
        self.gate.run(permit).await
    }

    fn keep(&self, tool_call_id: ToolCallId, execution: Execution) -> Heartbeat {
        let (store, lease) = (self.store.clone(), self.lease);
        Heartbeat::begin(&self.tasks, &self.metrics, Work::Call(tool_call_id), lease, move || {
            let store = store.clone();
            async move {
                let write = store.urgent_write().await?;
                let renewed = write.renew_call(tool_call_id, execution, lease).await?;
                write.commit().await?;
                Ok(renewed)
            }
        })
    }

    async fn settle(
        &self,
        tool_call_id: ToolCallId,
        execution: Execution,
        outcome: &Outcome,
        result: &str,
    ) -> Result<bool, StoreError> {
        let write = self.store.urgent_write().await?;
        let settled = write.settle(tool_call_id, execution, outcome, result.to_owned()).await?;
        write.commit().await?;
        Ok(settled)
    }

    /// Comes back once a tool should not be waited for any more. One that was taken for dead is: its effect
    /// cannot be stopped, and its outcome, though late, can still be told.
    async fn given_up(&self, heartbeat: &Heartbeat) {
        match heartbeat.halt().await {
            Halt::Cancelled | Halt::Leaving => {}
            Halt::Lost => self.tasks.cut().await,
        }
    }
}
