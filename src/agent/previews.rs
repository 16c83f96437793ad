//! The previews of the calls of a step, made before the step is committed.
//!
//! Only the transaction that commits the step knows which calls are held, and no transaction is open while a tool
//! works. So a transaction that holds a call without its preview is rolled back, and repeated with the preview.

use crate::tools::gate::Gate;
use futures::future::join_all;
use holdpoint_core::card::preview::Preview;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::policy::Judgement;
use holdpoint_core::tool::input::Input;
use holdpoint_store::NewCall;
use holdpoint_store::permit::Requester;
use std::collections::HashMap;

/// The previews of the calls of a step. The inputs of a proposed call do not change.
pub(super) type Previews = HashMap<ToolCallId, Preview>;

/// A call whose preview is missing.
#[derive(Debug)]
pub(super) struct MissingPreview {
    id: ToolCallId,
    tool_name: String,
    input: Input,
}

/// Returns the calls that would be held without the preview that their tools have.
pub(super) fn missing(gate: &Gate, calls: &[NewCall]) -> Vec<MissingPreview> {
    let lacks = |call: &&NewCall| {
        matches!(call.judgement, Judgement::Held { .. })
            && call.preview.is_none()
            && gate.has_preview(&call.name)
    };
    let missing = |call: &NewCall| MissingPreview {
        id: call.id,
        tool_name: call.name.clone(),
        input: call.input.clone(),
    };
    calls.iter().filter(lacks).map(missing).collect()
}

/// Makes these previews at once, on behalf of this user. The gate limits their time.
pub(super) async fn make(gate: &Gate, requester: &Requester, missing: Vec<MissingPreview>) -> Previews {
    let make = |MissingPreview { id, tool_name, input }: MissingPreview| async move {
        (id, gate.preview(&tool_name, &input, requester).await)
    };
    join_all(missing.into_iter().map(make)).await.into_iter().collect()
}
