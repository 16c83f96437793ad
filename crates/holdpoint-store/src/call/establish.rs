//! Outcomes that an operator establishes: an interrupted call is settled once, by the first finding.

use crate::{LockedCall, ResolvedBy, StoreError, Write};
use holdpoint_core::call::{Outcome, State, StateKind, established};
use holdpoint_core::decision::Surface;

/// What an operator found out about a call.
#[derive(Debug)]
pub struct Finding<'a> {
    pub outcome: Outcome,
    /// The operator, as an actor.
    pub actor: &'a str,
    /// The operator's reason.
    pub reason: Option<&'a str>,
    /// Where the operator said so.
    pub surface: Surface,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EstablishOutcome {
    /// The call has this outcome now.
    Now,
    /// The call is in this state, and its outcome is not unknown.
    NotInterrupted(StateKind),
    /// The content of the call was erased, so the call does not change any more.
    Erased,
}

impl Write {
    /// Settles a locked call with a finding, if its outcome is unknown. The model reads that an operator established
    /// the outcome, in a text of at most `bytes_max` bytes.
    pub async fn establish(
        &self,
        LockedCall { call, .. }: &LockedCall,
        finding: &Finding<'_>,
        bytes_max: usize,
    ) -> Result<EstablishOutcome, StoreError> {
        let State::Interrupted(_, execution, _) = &call.state else {
            return Ok(EstablishOutcome::NotInterrupted(call.state.kind()));
        };
        let Finding { outcome, actor, reason, surface } = finding;
        let result = established(outcome, call, *reason, bytes_max);
        let by = ResolvedBy::Operator { actor, reason: *reason, surface: *surface };
        let is_now = self.resolve(call.id, *execution, outcome, &result, by).await?;
        Ok(if is_now { EstablishOutcome::Now } else { EstablishOutcome::Erased })
    }
}
