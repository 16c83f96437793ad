//! Identifiers: one type each, so that a thread's id cannot stand where a call's is wanted.
//!
//! An id has one spelling, the lower-case hyphenated UUID (RFC 9562). Another spelling of the same number
//! is not an id: rate limits, replays and logs would otherwise see two things where there is one.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// A text that is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a lower-case hyphenated UUID")]
pub struct InvalidId;

macro_rules! ids {
    ($($(#[$doc:meta])* $vis:vis $name:ident),+ $(,)?) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        $vis struct $name(Uuid);

        impl $name {
            /// The id with this number.
            pub(crate) const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                canonical(text).map(Self)
            }
        }
    )+ };
}

ids! {
    /// A conversation.
    pub ThreadId,
    /// A message of a thread.
    pub(crate) MessageId,
    /// From a user message to the final answer, pauses included.
    pub RunId,
    /// A tool call; minted here, because providers repeat and omit theirs.
    pub ToolCallId,
    /// One execution of a call; who holds it may settle the call.
    pub(crate) ExecId,
    /// A yes that was to be remembered.
    pub(crate) GrantId,
    /// What stands in for a token, once.
    pub(crate) TicketId,
}

fn canonical(text: &str) -> Result<Uuid, InvalidId> {
    let uuid = Uuid::try_parse(text).map_err(|_| InvalidId)?;
    let mut buffer = Uuid::encode_buffer();
    if uuid.as_hyphenated().encode_lower(&mut buffer) == text { Ok(uuid) } else { Err(InvalidId) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let text = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(ToolCallId::from_str(text).unwrap().to_string(), text);
        let others = [
            "01890A5D-AC96-774B-BCCE-B302099A8057",
            "{01890a5d-ac96-774b-bcce-b302099a8057}",
            "urn:uuid:01890a5d-ac96-774b-bcce-b302099a8057",
            "01890a5dac96774bbcceb302099a8057",
            " 01890a5d-ac96-774b-bcce-b302099a8057",
            "",
            "call-1",
        ];
        for other in others {
            assert_eq!(ToolCallId::from_str(other), Err(InvalidId), "{other:?}");
        }
    }
}
