//! The user messages that a client shows before its new one, and that the server may never have taken.
//!
//! A page keeps a message that was refused, because another turn was running or a limit was reached, and shows it in the
//! conversation. The model has to read what its user reads.

use holdpoint_core::message::UserWords;

/// Maximum number of messages that are taken before a new one.
const TAKEN_MAX: usize = 20;
/// Maximum number of messages that are kept of a request. If all of them are unknown, there are too many.
const KEPT_MAX: usize = TAKEN_MAX + 1;

/// The user messages between the last answer that a client shows and its new message.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct EarlierMessages {
    newest_first: Vec<EarlierMessage>,
    /// The text of the last user message before the last answer.
    before: Option<String>,
}

/// A user message that a client shows before its new one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EarlierMessage {
    /// The client's name for the message.
    pub(crate) id: Option<String>,
    /// The place of the message in the request.
    pub(crate) field: String,
    /// The text, or why the message can never be taken, with its place.
    pub(crate) text: Result<String, String>,
}

/// A message that a client shows before its new one.
#[derive(Debug)]
pub(crate) enum ShownMessage {
    User(EarlierMessage),
    Answer,
    /// A message that the server does not read.
    Other,
}

/// What a request adds before its new message.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Added {
    /// The messages, oldest first.
    pub(super) taken: Vec<UserWords>,
    /// The messages that can never be taken, by their places, with the reasons.
    pub(super) left_out: Vec<String>,
}

impl EarlierMessages {
    /// Returns the user messages that directly precede a new one.
    pub(crate) fn of(newest_first: impl Iterator<Item = ShownMessage>) -> Self {
        let mut earlier = Self::default();
        let mut is_answered = false;
        for shown in newest_first {
            match shown {
                ShownMessage::Answer if earlier.newest_first.is_empty() => break,
                ShownMessage::Answer => is_answered = true,
                ShownMessage::User(message) if is_answered => {
                    earlier.before = message.text.ok();
                    break;
                }
                ShownMessage::User(message) => {
                    earlier.newest_first.push(message);
                    if earlier.newest_first.len() == KEPT_MAX {
                        break;
                    }
                }
                ShownMessage::Other => {}
            }
        }
        earlier
    }

    /// Returns the text of the last user message before the last answer, if the client shows both.
    pub(super) fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    pub(super) fn count_of_texts(&self) -> usize {
        self.newest_first.iter().filter(|message| message.text.is_ok()).count()
    }

    /// Returns the messages after the last one that is stored.
    pub(super) fn after_stored(self, is_stored: impl Fn(&EarlierMessage) -> bool) -> Added {
        let mut added = Added::default();
        let unknown = self.newest_first.into_iter().take_while(|message| !is_stored(message));
        for EarlierMessage { id, field, text } in unknown {
            match text {
                Ok(text) if text.is_empty() => {}
                Ok(text) if added.taken.len() < TAKEN_MAX => {
                    added.taken.push(UserWords { text, client_id: id });
                }
                Ok(_) => {
                    added
                        .left_out
                        .push(format!("{field} and those before it (more than {TAKEN_MAX} messages)"));
                }
                Err(why) => added.left_out.push(why),
            }
        }
        added.taken.reverse();
        added.left_out.reverse();
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &str) -> ShownMessage {
        let text = Ok(format!("words of {id}"));
        ShownMessage::User(EarlierMessage { id: Some(id.to_owned()), field: format!("m{id}"), text })
    }

    fn added(shown: Vec<ShownMessage>) -> (Vec<String>, Vec<String>) {
        let added = EarlierMessages::of(shown.into_iter().rev())
            .after_stored(|message| message.id.as_deref() == Some("stored"));
        (added.taken.into_iter().map(|words| words.text).collect(), added.left_out)
    }

    #[test]
    fn only_messages_after_the_last_answer_and_after_the_last_stored_one_are_added() {
        use ShownMessage::{Answer, Other};
        let none: Vec<String> = Vec::new();
        assert_eq!(added(vec![user("a"), Answer]).0, none);
        assert_eq!(
            added(vec![user("a"), Answer, user("b"), Other, user("c")]).0,
            ["words of b", "words of c"]
        );
        assert_eq!(added(vec![Answer, user("a"), user("stored"), user("c")]).0, ["words of c"]);
        assert_eq!(added(vec![user("a"), user("stored")]).0, none);
    }

    #[test]
    fn of_more_than_the_maximum_the_newest_are_added_and_the_others_are_named() {
        let shown = |count: usize| (1..=count).map(|n| user(&n.to_string())).collect::<Vec<_>>();
        let (taken, left_out) = added(shown(TAKEN_MAX));
        assert_eq!((taken.len(), left_out.len()), (TAKEN_MAX, 0));
        let (taken, left_out) = added(shown(500));
        assert_eq!((taken.len(), taken[0].as_str()), (TAKEN_MAX, "words of 481"));
        assert_eq!(left_out, ["m480 and those before it (more than 20 messages)"]);
    }
}
