//! The acceptance of definitions of MCP tools.

use super::{Approvals, Denied, Right, has_denied};
use crate::tools::is_tool_name;
use holdpoint_core::Principal;
use holdpoint_core::tool::definition::Accepted;
use holdpoint_store::AcceptOutcome;

/// The reason why a definition is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The server lists another definition now.
    #[error("the definition has changed since it was read")]
    Moved {
        /// The hash of the definition now.
        current: String,
    },
}

has_denied!(AcceptError);

impl Approvals {
    /// Whether this principal may accept definitions. Without authentication the one user may.
    pub(crate) fn may_accept(&self, principal: &Principal) -> bool {
        self.accepting.as_ref().is_none_or(|roles| principal.has_one_of(roles))
    }

    /// Accepts the definition with this hash, which the server of the tool has to list now. Then its calls run again
    /// where the policy lets them: in this process at once, in others when they have read it. A definition that is
    /// accepted stays so.
    pub(crate) async fn accept_definition(
        &self,
        principal: &Principal,
        tool_name: &str,
        hash: &str,
    ) -> Result<Accepted, AcceptError> {
        if !self.may_accept(principal) {
            return Err(Denied::Forbidden(Right::AcceptDefinitions).into());
        }
        if !is_tool_name(tool_name) {
            return Err(Denied::NotFound.into());
        }
        let write = self.store.urgent_write().await?;
        match write.accept_definition(tool_name, hash, &principal.actor()).await? {
            AcceptOutcome::Accepted(accepted) => {
                write.commit().await?;
                self.executor.gates.accept(&accepted);
                Ok(accepted)
            }
            AcceptOutcome::Moved { current } => Err(AcceptError::Moved { current }),
            AcceptOutcome::NoTool => Err(Denied::NotFound.into()),
        }
    }
}
