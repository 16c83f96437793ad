//! Links: addresses in messages to one person that open the card of a held call.
//!
//! A link gives no right. The person signs in as always, and decides by their own rights. A link is bound to its call,
//! its person and the inputs of the message, and one decision uses it up.

use super::Principal;
use super::id::ToolCallId;
use crate::json::hex::hex;
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

/// How long a link is valid after it was made, which is right before its message is sent.
pub const VALID: Duration = Duration::from_secs(60 * 60);

/// The token of a link: 256 random bits, as the address in the message has them. Only its hash is stored.
#[derive(Clone)]
pub struct LinkToken(String);

/// The hash of a token, which reveals nothing of it, because a token has 256 random bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkHash(String);

/// What a link is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTarget {
    /// The call whose card the link opens.
    pub tool_call_id: ToolCallId,
    /// The tenant of the person.
    pub tenant_id: String,
    /// The person that gets the message.
    pub user_id: String,
    /// The hash of what the card showed when the link was made.
    pub input_hash: String,
}

/// The reason why a link opens and decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LinkRefused {
    /// There is no such link for the call, or its time is over.
    #[error("there is no such link")]
    Unknown,
    /// The link is for another person.
    #[error("the link is for another person")]
    OtherPerson,
    /// A decision has used the link.
    #[error("the link is used")]
    Used,
}

impl LinkToken {
    /// Takes a fresh secret, or what a request names as a token.
    pub fn new(token: String) -> Self {
        Self(token)
    }

    /// Returns the text for the address in a message. It must reach nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the form that is stored.
    pub fn hash(&self) -> LinkHash {
        LinkHash(hex(&Sha256::digest(&self.0)))
    }
}

impl fmt::Debug for LinkToken {
    /// Leaves out the token, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkToken").finish_non_exhaustive()
    }
}

impl LinkHash {
    /// Returns the text in its row.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl LinkTarget {
    /// Checks that the link is for this person.
    pub fn check_person(&self, principal: &Principal) -> Result<(), LinkRefused> {
        let Principal { tenant_id, user_id, .. } = principal;
        let is_own = *tenant_id == self.tenant_id && *user_id == self.user_id;
        is_own.then_some(()).ok_or(LinkRefused::OtherPerson)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_in_no_debug_output_and_its_hash_is_sha_256() {
        let token = LinkToken::new("abc".to_owned());
        assert!(!format!("{token:?}").contains("abc"));
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(token.hash().as_str(), expected);
    }
}
