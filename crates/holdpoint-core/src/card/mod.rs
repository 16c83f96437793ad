//! Complete cards: what a surface has to show before it offers an approval.
//!
//! The hash of an approval covers more than the inputs. A surface that leaves a part out offers a rejection and the way
//! to a complete card, and no approval.

pub mod hold;
pub mod obstacle;
pub mod preview;
pub mod progress;

use crate::vocabulary;

vocabulary! {
    /// A part of a card.
    pub enum CardPart {
        /// The inputs that the model proposed.
        Inputs = "inputs",
        /// The secrets in the inputs, as they are. A part of the card only if the risk is not low.
        Secrets = "secrets",
        /// The inputs that the operator sets.
        Constants = "constants",
        /// What the tool says that the call would do, or why it says nothing.
        Preview = "preview",
        /// What an MCP server says about the tool, if no operator has accepted that.
        Definition = "definition",
    }
}

impl CardPart {
    /// Returns the name of the part in sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inputs => "the inputs",
            Self::Secrets => "the secret inputs",
            Self::Constants => "the inputs that the operator sets",
            Self::Preview => "the preview",
            Self::Definition => "the definition",
        }
    }
}

/// Whether a surface that shows these parts whole may offer an approval of a call with this complete card.
pub fn may_offer_approval(complete: &[CardPart], shown: &[CardPart]) -> bool {
    complete.iter().all(|part| shown.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_card_offers_an_approval() {
        for complete in subsets() {
            for shown in subsets() {
                let lacks_nothing = complete.iter().filter(|part| !shown.contains(part)).count() == 0;
                assert_eq!(may_offer_approval(&complete, &shown), lacks_nothing, "{complete:?} {shown:?}");
            }
        }
    }

    fn subsets() -> impl Iterator<Item = Vec<CardPart>> {
        (0..1 << CardPart::ALL.len()).map(|bits: usize| {
            let has = |n: &usize| bits & (1 << n) != 0;
            (0..CardPart::ALL.len()).filter(has).map(|n| CardPart::ALL[n]).collect()
        })
    }
}
