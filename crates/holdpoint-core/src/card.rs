//! Complete cards: what a surface has to show before it offers an approval.
//!
//! The hash of an approval covers more than the inputs. A surface that leaves a part out offers a rejection and the way
//! to a complete card, and no approval.

/// A part of a card that the hash of an approval covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardPart {
    /// The inputs that the model proposed.
    Inputs,
    /// The secrets in the inputs, as they are. A part of the card only if the risk is not low.
    Secrets,
    /// The inputs that the operator sets.
    Constants,
    /// What the tool says that the call would do, or why it says nothing.
    Preview,
    /// What an MCP server says about the tool, if no operator has accepted that.
    Definition,
}

impl CardPart {
    /// All parts, in the order of a card.
    pub const ALL: [Self; 5] =
        [Self::Inputs, Self::Secrets, Self::Constants, Self::Preview, Self::Definition];

    /// Returns the word for the part in lists, streams and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Inputs => "inputs",
            Self::Secrets => "secrets",
            Self::Constants => "constants",
            Self::Preview => "preview",
            Self::Definition => "definition",
        }
    }

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

    /// Returns the part with this word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.word() == word)
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

    #[test]
    fn each_part_has_a_word_of_its_own() {
        for part in CardPart::ALL {
            assert_eq!(CardPart::named(part.word()), Some(part));
        }
        assert_eq!(CardPart::named("headline"), None);
    }

    fn subsets() -> impl Iterator<Item = Vec<CardPart>> {
        (0..1 << CardPart::ALL.len()).map(|bits: usize| {
            let has = |n: &usize| bits & (1 << n) != 0;
            (0..CardPart::ALL.len()).filter(has).map(|n| CardPart::ALL[n]).collect()
        })
    }
}
