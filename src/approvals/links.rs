//! Links in messages to one person: what makes them, opens them and uses them up. A link gives no right.

use super::{Approvals, DecideError, Decider};
use holdpoint_core::Principal;
use holdpoint_core::call::ToolCall;
use holdpoint_core::link::{LinkRefused, LinkTarget, LinkToken};
use holdpoint_store::{StoreError, Write};

/// The reason why a link is not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenLinkError {
    /// The link opens nothing for this principal.
    #[error(transparent)]
    Refused(#[from] LinkRefused),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug)]
pub(crate) struct OpenedLink {
    /// The call in its current state.
    pub(crate) call: ToolCall,
    /// The hash of what the card showed when the link was made.
    pub(crate) input_hash: String,
}

impl Approvals {
    /// Makes a link for a message that is about to be sent. Returns `None` if the machine has no randomness to give.
    pub(crate) async fn make_link(&self, target: &LinkTarget) -> Result<Option<LinkToken>, StoreError> {
        let Some(token) = self.entropy.secret().map(LinkToken::new) else { return Ok(None) };
        let write = self.store.write().await?;
        write.add_link(&token.hash(), target).await?;
        write.commit().await?;
        Ok(Some(token))
    }

    /// Returns the call of a link, and changes nothing. The principal has to be the person of the link, and has to see
    /// the call without it.
    pub(crate) async fn open_link(
        &self,
        principal: &Principal,
        token: &LinkToken,
    ) -> Result<OpenedLink, OpenLinkError> {
        let read = self.store.timed_read().await?;
        let link = read.link(&token.hash(), read.now()).await?.ok_or(LinkRefused::Unknown)?;
        link.check_person(principal)?;
        let (call, _) =
            self.visible_call(&read, principal, link.tool_call_id).await?.ok_or(LinkRefused::Unknown)?;
        Ok(OpenedLink { call, input_hash: link.input_hash })
    }

    /// Uses up the link of a decision, in the transaction of the decision. The link has to be for this decider, this
    /// call and what the call shows now.
    pub(super) async fn use_link(
        write: &Write,
        by: Decider<'_>,
        call: &ToolCall,
        token: &LinkToken,
        shown: &str,
    ) -> Result<(), DecideError> {
        let link = write.link(&token.hash(), write.now()).await?.ok_or(LinkRefused::Unknown)?;
        link.check_person(by.visible_as())?;
        if link.tool_call_id != call.id {
            return Err(LinkRefused::Unknown.into());
        }
        if link.input_hash != shown {
            return Err(DecideError::Stale { input_hash: shown.to_owned() });
        }
        let is_first = write.use_link(&token.hash()).await?;
        is_first.then_some(()).ok_or_else(|| LinkRefused::Used.into())
    }
}
