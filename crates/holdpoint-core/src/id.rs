//! Identifiers. Each kind of id is its own type, so that a thread's id cannot be passed for a call's.
//!
//! An id has one spelling, the lower-case hyphenated UUID (RFC 9562). Any other spelling of the same number
//! is rejected. Otherwise rate limits, replays and logs would treat one id as two.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// The error for a text that is not an id.
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
            /// Creates the id with this number.
            pub const fn new(uuid: Uuid) -> Self {
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
    /// The id of a conversation.
    pub ThreadId,
    /// The id of a message in a thread.
    pub MessageId,
    /// The id of a run, which lasts from a user message to the final answer, pauses included.
    pub RunId,
    /// The id of a tool call. The server mints it, because providers repeat and omit theirs.
    pub ToolCallId,
    /// The id of one execution of a call. The holder of the execution may settle the call.
    pub ExecId,
    /// The id of a request of a call to people.
    pub RequestId,
    /// The id of a grant.
    pub GrantId,
    /// The id of a ticket, which replaces a token once.
    pub TicketId,
    /// The id of a sign-in that the server keeps.
    pub SignInId,
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
