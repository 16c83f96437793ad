//! Opening the secrets of a card: a person that may decide a call reads its inputs without masks, on the record.

use super::{Approvals, DecideError, Decider, DecisionRequest};
use holdpoint_core::decision::Choice;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::tool::input::Input;

/// The inputs of a call without masks.
#[derive(Debug)]
pub(crate) struct Revealed {
    /// The proposed inputs.
    pub(crate) input: Input,
    /// The inputs that replaced them in the approval.
    pub(crate) edited: Option<Input>,
    /// The places of the secrets in both.
    pub(crate) secrets: Vec<String>,
    /// The hash that the card of the call shows now.
    pub(crate) input_hash: String,
}

impl Approvals {
    /// Returns the inputs of a held call without masks, for a decider that may approve or reject it. The event of a call
    /// with secrets is committed before the inputs leave the server.
    pub(crate) async fn reveal(
        &self,
        by: Decider<'_>,
        tool_call_id: ToolCallId,
    ) -> Result<Revealed, DecideError> {
        if let Decider::Person(principal) = by {
            self.count(principal)?;
        }
        let choice = Choice::Reject { reason: None };
        let request = DecisionRequest { choice, ..DecisionRequest::undecided(tool_call_id, None) };
        let gate = self.gate();
        let (write, locked) = self.lock_for(&gate, by, &request).await?;
        let call = &locked.call;
        if call.unreadable {
            return Err(DecideError::Unreadable);
        }
        let (secrets, input_hash) = (call.secret_pointers(), gate.shown_hash(call));
        if secrets.is_empty() {
            drop(write);
        } else {
            write.inputs_revealed(&locked, &by.actor(), &input_hash);
            write.commit().await?;
        }
        let edited = locked.call.edited_input().cloned();
        Ok(Revealed { input: locked.call.input, edited, secrets, input_hash })
    }
}
