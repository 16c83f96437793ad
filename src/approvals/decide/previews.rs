//! Previews of edited inputs: an approver approves an edit together with its preview.
//!
//! Nothing is stored before the decision. The approver names the hash of the preview that was shown, and the
//! decision makes the preview again: if the preview differs, the approver has not seen it.

use super::{check, needs_preview};
use crate::approvals::{Approvals, DecideError, Decider, DecisionRequest};
use holdpoint_core::Principal;
use holdpoint_core::call::{State, input_hash};
use holdpoint_core::card::preview::Preview;
use holdpoint_core::decision::Choice;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::tool::input::Input;

/// What an approver is shown about edited inputs.
#[derive(Debug)]
pub(crate) struct EditPreview {
    /// What the tool says, if it has previews.
    pub(crate) preview: Option<Preview>,
    /// The hash that the approval of these inputs names. It is the hash of that decision.
    pub(crate) hash: String,
}

impl Approvals {
    /// Makes a preview of the call with these inputs. They pass the checks of an approval before the tool sees
    /// them.
    pub(crate) async fn preview_edit(
        &self,
        principal: &Principal,
        tool_call_id: ToolCallId,
        inputs: Input,
    ) -> Result<EditPreview, DecideError> {
        self.count(principal)?;
        let request = DecisionRequest::undecided(tool_call_id, Some(inputs));
        let gate = self.gate();
        let (write, locked) = self.lock_for(&gate, Decider::Person(principal), &request).await?;
        if !matches!(locked.call.state, State::Pending) {
            return Err(DecideError::Closed(Box::new(locked.call)));
        }
        let answer = check(&gate, &locked.call, &request)?;
        self.check_policy(&gate, &write, &locked, &answer).await?;
        // Nothing was written, and no transaction is open while a tool works.
        drop(write);
        let call = &locked.call;
        let Choice::Approve { inputs: Some(inputs), .. } = &answer else {
            // These are the proposed inputs.
            return Ok(EditPreview { preview: call.preview.clone(), hash: gate.shown_hash(call) });
        };
        let preview = match needs_preview(&gate, call, &answer) {
            Some(inputs) => Some(gate.preview(&call.name, inputs, &locked.thread.requester()).await),
            None => None,
        };
        let hash = input_hash(&call.name, inputs, gate.current_schema(call), preview.as_ref());
        Ok(EditPreview { preview, hash })
    }
}
