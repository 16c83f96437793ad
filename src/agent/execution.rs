//! Running what is permitted, and writing down how it went.

use crate::domain::call::Outcome;
use crate::domain::permit::Permit;
use crate::domain::turn::Shown;
use crate::store::{Store, StoreError};
use crate::tools::gate::Gate;

/// Runs one call and settles it. What a page shows of it, if it could be written; `None` if the call is not
/// this execution's any more, so that somebody else told how it ended.
pub(crate) async fn run_and_settle(
    store: &Store,
    gate: &Gate,
    permit: Permit,
) -> Result<Option<Shown>, StoreError> {
    let (tool_call_id, execution) = (permit.tool_call_id(), permit.execution());
    let (asked, ran) = (permit.asked().clone(), permit.input().clone());
    let outcome = gate.run(permit).await;
    let result = gate.words(&outcome, &asked, &ran);
    let write = store.write().await?;
    let settled = write.settle(tool_call_id, execution, &outcome, result.clone()).await?;
    write.commit().await?;
    let shown = match outcome {
        Outcome::Succeeded(output) => Shown::Output(output),
        Outcome::Failed(_) | Outcome::Interrupted => Shown::Error(result),
    };
    Ok(settled.then_some(shown))
}
