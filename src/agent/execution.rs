//! Running what is permitted, and writing down how it went.

use crate::domain::call::{Execution, Outcome};
use crate::domain::id::ToolCallId;
use crate::domain::permit::Permit;
use crate::domain::turn::Shown;
use crate::store::{Store, StoreError};
use crate::tools::gate::Gate;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before an outcome is written again; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Runs one call and settles it. What a page shows of it, if it could be written; `None` if the call is not
/// this execution's any more, so that somebody else told how it ended.
///
/// The tool has had its effect by then, so its outcome is not given up for a busy or restarting database: it
/// is tried until the execution's lease is over.
pub(crate) async fn run_and_settle(
    store: &Store,
    gate: &Gate,
    permit: Permit,
    lease: Duration,
) -> Result<Option<Shown>, StoreError> {
    let (tool_call_id, execution) = (permit.tool_call_id(), permit.execution());
    let (asked, ran) = (permit.asked().clone(), permit.input().clone());
    let outcome = gate.run(permit).await;
    let result = gate.words(&outcome, &asked, &ran);
    let give_up = Instant::now() + lease;
    let mut pause = FIRST_PAUSE;
    let mut unsure = false;
    let settled = loop {
        match settle(store, tool_call_id, execution, &outcome, result.clone()).await {
            // A commit that seemed to fail may have been made; then there is nothing left to settle.
            Ok(settled) => break settled || unsure,
            Err(error) if Instant::now() + pause >= give_up => return Err(error),
            Err(error) => tracing::warn!(%tool_call_id, %error, "an outcome could not be written yet"),
        }
        unsure = true;
        tokio::time::sleep(pause).await;
        pause *= 2;
    };
    let shown = match outcome {
        Outcome::Succeeded(output) => Shown::Output(output),
        Outcome::Failed(_) | Outcome::Interrupted => Shown::Error(result),
    };
    Ok(settled.then_some(shown))
}

async fn settle(
    store: &Store,
    tool_call_id: ToolCallId,
    execution: Execution,
    outcome: &Outcome,
    result: String,
) -> Result<bool, StoreError> {
    let write = store.write().await?;
    let settled = write.settle(tool_call_id, execution, outcome, result).await?;
    write.commit().await?;
    Ok(settled)
}
