//! Resolutions: an operator establishes the outcome of an interrupted call, over HTTP as in the terminal.

use super::{Approvals, Denied, Right, has_denied};
use holdpoint_core::Principal;
use holdpoint_core::call::{Outcome, StateKind};
use holdpoint_core::decision::Surface;
use holdpoint_core::id::ToolCallId;
use holdpoint_store::{EstablishOutcome, Finding};

/// The reason why a resolution is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The outcome of the call is not unknown.
    #[error("the call is {}, not interrupted", .0.word())]
    NotInterrupted(StateKind),
}

has_denied!(ResolveError);

impl Approvals {
    /// Whether this principal may establish outcomes: an operator, and without authentication the one user.
    pub(crate) fn may_resolve(&self, principal: &Principal) -> bool {
        self.has_one_user || principal.has_one_of(&self.operators)
    }

    /// Settles an interrupted call that this principal may see with an outcome that the principal found out. The
    /// first finding counts, and a late outcome of the execution may be faster. Returns the state.
    pub(crate) async fn resolve(
        &self,
        principal: &Principal,
        id: ToolCallId,
        outcome: Outcome,
        reason: Option<&str>,
    ) -> Result<StateKind, ResolveError> {
        self.rate_limit.count(principal)?;
        let write = self.store.urgent_write().await?;
        let locked = write.lock_visible_call(principal, &self.visibility(principal), id).await?;
        let locked = locked.ok_or(Denied::NotFound)?;
        if !self.may_resolve(principal) {
            return Err(Denied::Forbidden(Right::ResolveCalls).into());
        }
        let state = match &outcome {
            Outcome::Succeeded(_) => StateKind::Succeeded,
            _ => StateKind::Failed,
        };
        let (actor, surface) = (principal.actor(), Surface::Rest);
        let finding = Finding { outcome, actor: &actor, reason, surface };
        match write.establish(&locked, &finding, self.result_bytes).await? {
            EstablishOutcome::Now => {}
            EstablishOutcome::NotInterrupted(state) => return Err(ResolveError::NotInterrupted(state)),
            // The calls of a thread that was purged exist for no principal.
            EstablishOutcome::Erased => return Err(Denied::NotFound.into()),
        }
        write.commit().await?;
        self.wake_waiters_in(locked.thread.id);
        Ok(state)
    }
}
