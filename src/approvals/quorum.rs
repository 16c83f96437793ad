//! Tools that want several people: whose yes counts, and for what.
//!
//! A yes counts for the inputs it was given for, with the schema of the tool as it was then, so that all who are counted
//! agreed on the same. It stands until the call is decided; who thinks better of it rejects, and one rejection decides.

use super::Approvals;
use crate::domain::call::ToolCall;
use crate::domain::decision::Choice;
use crate::store::{Counted, StoreError, Thread, Vote, Write};

impl Approvals {
    /// Counts what somebody says, before it decides. A no always does.
    pub(super) async fn count_vote(
        &self,
        write: &Write,
        thread: &Thread,
        call: &ToolCall,
        answer: &Choice,
        vote: &Vote,
    ) -> Result<Counted, StoreError> {
        let quorum = self.gate().registry().quorum(&call.name);
        if quorum.people <= 1 || matches!(answer, Choice::Reject { .. }) {
            return Ok(Counted::Enough(Vec::new()));
        }
        write.count_vote(thread, call, answer, vote, quorum).await
    }
}
