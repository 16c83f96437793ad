//! The policy of one session, beside the operator's policy.

use super::Approvals;
use crate::domain::Principal;
use crate::domain::id::ThreadId;
use crate::domain::policy::{Loosened, SessionPolicy};
use crate::store::StoreError;

/// The reason why the policy of a session is not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// No such session, for this principal.
    #[error("there is no such session")]
    NotFound,
    /// The policy of a tool would be looser than before, which only an operator may do.
    #[error("the tool {0:?} would go further than before")]
    Loosened(String),
    /// Tools that ask would have a looser policy, if there are any.
    #[error("the mode would go further than before")]
    ModeLoosened,
    /// No such tool.
    #[error("there is no tool {0:?}")]
    UnknownTool(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Approvals {
    /// Replaces the policy of a session. The session's user may only tighten it, because an operator may have
    /// set the current policy.
    pub(crate) async fn set_policy(
        &self,
        principal: &Principal,
        session: ThreadId,
        policy: &SessionPolicy,
    ) -> Result<(), PolicyError> {
        let operates = principal.has_one_of(&self.operators);
        let write = self.store.urgent_write().await?;
        let root = write.any_session(principal, session).await?;
        let root = root.filter(|root| operates || root.is_of(principal)).ok_or(PolicyError::NotFound)?;
        write.lock_thread(&root).await?;
        let before = write.session_policy(&root).await?;
        let registry = self.gate().registry();
        // The stored policy may name tools of another build. A tool that the principal may not run counts as
        // unknown.
        let is_known = |name: &str| {
            before.tools.contains_key(name)
                || registry.get(name).is_some_and(|tool| operates || tool.is_visible_to(principal))
        };
        if let Some(unknown) = policy.tools.keys().find(|name| !is_known(name)) {
            return Err(PolicyError::UnknownTool(unknown.clone()));
        }
        if !operates && let Some(loosened) = self.gate().loosened(&before, policy) {
            return Err(match loosened {
                Loosened::Tool(tool) => PolicyError::Loosened(tool.to_owned()),
                Loosened::Mode => PolicyError::ModeLoosened,
            });
        }
        write.set_session_policy(&root, policy).await?;
        write.commit().await?;
        Ok(())
    }
}
