//! Answers that a user types at a terminal.

use super::{HandlerAnswer, Remember};

/// The question after the details of the call.
pub(super) const QUESTION: &str =
    "[y]es, [s]ession: all waiting and later calls of the tool too, [n]o [why], [c]ancel, [l]ater? ";

/// The beginning of the question about a call with secret inputs.
pub(super) const REVEAL: &str = "[r]eveal the secret inputs, ";

/// Whether a line asks for the secret inputs.
pub(super) fn reveals(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "r" | "reveal")
}

/// Parses an answer. Only a line that begins with a word of the question is an answer: a typing error decides
/// nothing.
pub(super) fn answer(line: &str) -> Option<HandlerAnswer> {
    let line = line.trim();
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let why = Some(rest.trim()).filter(|why| !why.is_empty()).map(str::to_owned);
    let word = word.to_lowercase();
    match (word.as_str(), why) {
        ("y" | "yes", None) => Some(HandlerAnswer::approved()),
        ("s" | "session", None) => {
            Some(HandlerAnswer::Approved { inputs: None, remember: Some(Remember::Session) })
        }
        ("n" | "no", reason) => Some(HandlerAnswer::Denied { reason }),
        ("c" | "cancel", reason) => Some(HandlerAnswer::Cancelled { reason }),
        ("l" | "later", None) => Some(HandlerAnswer::Deferred),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_line_is_an_answer_only_in_one_of_the_known_forms() {
        let reason = |why: &str| Some(why.to_owned());
        for (line, expected) in [
            ("y\n", Some(HandlerAnswer::approved())),
            ("  YES \r\n", Some(HandlerAnswer::approved())),
            ("s", Some(HandlerAnswer::Approved { inputs: None, remember: Some(Remember::Session) })),
            ("n", Some(HandlerAnswer::Denied { reason: None })),
            ("No  it is too much ", Some(HandlerAnswer::Denied { reason: reason("it is too much") })),
            ("c", Some(HandlerAnswer::Cancelled { reason: None })),
            ("cancel not now", Some(HandlerAnswer::Cancelled { reason: reason("not now") })),
            ("later", Some(HandlerAnswer::Deferred)),
            ("", None),
            ("yep", None),
            ("y but smaller", None),
            ("yn", None),
            ("session of mine", None),
            ("ok", None),
        ] {
            assert_eq!(answer(line), expected, "{line:?}");
        }
    }
}
