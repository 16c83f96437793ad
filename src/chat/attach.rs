//! Attaching to the turn of a thread: requests of clients that mount, or that learned of a decision.

use super::continuation::LockedRequest;
use super::request::AdmitError;
use super::{Chat, StartedTurn};
use crate::approvals::Denied;
use holdpoint_core::Principal;
use holdpoint_stream::ClientTraits;

impl Chat {
    /// Attaches to the running turn of the named thread, from the beginning of the turn. A client that needs
    /// the earlier steps of the message gets them first. If no turn is running and every held call of the
    /// last message has an outcome that the model has not read, the run resumes for a client that resumes by
    /// GET. Returns `None` if there is nothing to read.
    pub(crate) async fn attach(
        &self,
        principal: &Principal,
        name: &str,
        client: ClientTraits,
    ) -> Result<Option<StartedTurn>, AdmitError> {
        let write = self.store.write().await?;
        let thread = write.lock_thread_named(principal, name).await?.ok_or(Denied::NotFound)?;
        let locked = LockedRequest { write, thread, principal };
        let next = self.continue_by_get(&locked, client).await?;
        Ok(self.commit_and_start(locked, next).await?)
    }
}
