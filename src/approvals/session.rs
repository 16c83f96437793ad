//! What holds in one session beside the operator's policy.

use super::Approvals;
use crate::domain::Principal;
use crate::domain::id::ThreadId;
use crate::domain::policy::SessionPolicy;
use crate::store::StoreError;

/// Why a session's policy stays as it is.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// No such session, for this principal.
    #[error("there is no such session")]
    NotFound,
    /// A tool would go further than before, and only an operator has it do so.
    #[error("the tool {0:?} would go further than before")]
    Loosened(String),
    /// No such tool.
    #[error("there is no tool {0:?}")]
    UnknownTool(String),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Approvals {
    /// Has this hold in a session, in place of what did. Its user may only tighten: what held may be an operator's word.
    pub(crate) async fn set_policy(
        &self,
        principal: &Principal,
        session: ThreadId,
        policy: &SessionPolicy,
    ) -> Result<(), PolicyError> {
        let registry = self.gate().registry();
        if let Some(unknown) = policy.tools.keys().find(|name| registry.get(name).is_none()) {
            return Err(PolicyError::UnknownTool(unknown.clone()));
        }
        let operates = principal.has_one_of(&self.operators);
        let write = self.store.urgent_write().await?;
        let root = write.any_session(principal, session).await?;
        let root = root.filter(|root| operates || root.is_of(principal)).ok_or(PolicyError::NotFound)?;
        write.lock_thread(&root).await?;
        let before = write.session_policy(&root).await?;
        if !operates && let Some(tool) = self.gate().loosened(&before, policy) {
            return Err(PolicyError::Loosened(tool.to_owned()));
        }
        write.set_session_policy(&root, policy).await?;
        write.commit().await?;
        Ok(())
    }
}
