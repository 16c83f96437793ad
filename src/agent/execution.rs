//! Running what is permitted, and writing down how it went.

use crate::domain::call::Outcome;
use crate::domain::permit::Permit;
use crate::store::{Store, StoreError};
use crate::tools::gate::Gate;

/// Runs one call and settles it. The outcome, if it could be written; `None` if the call does not stand as
/// executing any more, so that somebody else told how it ended.
pub(crate) async fn run_and_settle(
    store: &Store,
    gate: &Gate,
    permit: Permit,
) -> Result<Option<Outcome>, StoreError> {
    let (tool_call_id, execution) = (permit.tool_call_id(), permit.execution());
    let (asked, ran) = (permit.asked().clone(), permit.input().clone());
    let outcome = gate.run(permit).await;
    let result = gate.words(&outcome, &asked, &ran);
    let write = store.write().await?;
    let settled = write.settle(tool_call_id, execution, &outcome, result).await?;
    write.commit().await?;
    Ok(settled.then_some(outcome))
}
