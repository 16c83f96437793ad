//! Tools that want several people: whose yes counts, and for what.
//!
//! A yes counts for the inputs it was given for, with the schema of the tool as it was then, so that all who are counted
//! agreed on the same. It stands until the call is decided; who thinks better of it rejects, and one rejection decides.

use super::Approvals;
use crate::domain::call::ToolCall;
use crate::domain::decision::Answer;
use crate::store::{Counted, StoreError, Thread, Voice, Write};

impl Approvals {
    /// Counts what somebody says, before it decides. A no always does.
    pub(super) async fn count_voice(
        &self,
        write: &Write,
        thread: &Thread,
        call: &ToolCall,
        answer: &Answer,
        voice: &Voice,
    ) -> Result<Counted, StoreError> {
        let quorum = self.gate().registry().quorum(&call.name);
        if quorum.people <= 1 || matches!(answer, Answer::Reject { .. }) {
            return Ok(Counted::Enough(Vec::new()));
        }
        write.count_yes(thread, call, answer, voice, quorum).await
    }
}
