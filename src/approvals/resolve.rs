//! Resolutions: an operator establishes the outcome of an interrupted call, over HTTP as in the terminal.

use super::Approvals;
use crate::rate_limit::RateLimited;
use holdpoint_core::Principal;
use holdpoint_core::call::{Outcome, StateKind};
use holdpoint_core::decision::Surface;
use holdpoint_core::id::ToolCallId;
use holdpoint_store::{EstablishOutcome, Finding, StoreError};

/// The reason why a resolution is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    /// The user exceeded the rate limit of decisions.
    #[error(transparent)]
    TooOften(#[from] RateLimited),
    /// No such call, for this principal.
    #[error("there is no such tool call")]
    NotFound,
    /// The principal may see the call, and is no operator.
    #[error("this principal is no operator")]
    NoOperator,
    /// The outcome of the call is not unknown.
    #[error("the call is {}, not interrupted", .0.word())]
    NotInterrupted(StateKind),
    /// The database failed. Whether the outcome is stored is unknown; the state of the call shows it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

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
        let locked = locked.ok_or(ResolveError::NotFound)?;
        if !self.may_resolve(principal) {
            return Err(ResolveError::NoOperator);
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
            EstablishOutcome::Erased => return Err(ResolveError::NotFound),
        }
        write.commit().await?;
        self.wake_waiters_in(locked.thread.id);
        Ok(state)
    }
}
