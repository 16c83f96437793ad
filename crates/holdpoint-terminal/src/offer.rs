//! Whether the terminal offers the approval of a call: only if it has shown all that the approval covers.

use super::call::{Call, CannotApprove};
use holdpoint_core::card::{CardPart, may_offer_approval};
use holdpoint_core::text::visible::visible;

/// Everything about a call, as text.
#[derive(Debug)]
pub(crate) struct Sheet {
    pub(crate) text: String,
    /// Whether a part of the text is cut.
    pub(crate) is_cut: bool,
    /// The parts of the card that are whole in the text.
    pub(crate) drawn: Vec<CardPart>,
    /// Whether the inputs of an edit and their preview are whole in the text. `None` if there is no edit.
    pub(crate) draws_edit: Option<bool>,
}

impl Sheet {
    /// Returns why the approval of the call is not offered, if it is not.
    pub(crate) fn lacks(&self, call: &Call) -> Option<String> {
        // Other inputs may be approved although the proposed ones cannot be.
        let edits = self.draws_edit.is_some() && call.can_edit == Some(true);
        if let Some(CannotApprove { message }) = call.cannot_approve.as_ref().filter(|_| !edits) {
            let why = visible(message.trim_end_matches('.'));
            return Some(format!("the server would refuse your approval: {why}"));
        }
        let mut complete = Vec::new();
        for word in call.complete_card() {
            match CardPart::of_word(&word) {
                Some(part) => complete.push(part),
                None => {
                    return Some(format!(
                        "this version does not know the part {} of the call",
                        visible(&word)
                    ));
                }
            }
        }
        if may_offer_approval(&complete, &self.drawn) && self.draws_edit != Some(false) {
            return None;
        }
        let missing = complete.iter().filter(|part| !self.drawn.contains(part)).map(|part| part.name());
        let edit = (self.draws_edit == Some(false)).then_some("your inputs");
        let missing: Vec<&str> = missing.chain(edit).collect();
        let way = if self.is_cut { "; --full shows everything" } else { "" };
        Some(format!("not shown whole: {}{way}", missing.join(", ")))
    }
}
