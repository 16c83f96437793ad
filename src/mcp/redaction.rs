//! The secrets of a server, which no log line and no error contains.

use crate::domain::text::cut;
use crate::domain::visible::{escaped_lines, visible};

/// Maximum length of a text from a server or a library, in bytes.
const TEXT_BYTES_MAX: usize = 500;
/// Maximum length of the words of a server about a call, in bytes.
const WORDS_BYTES_MAX: usize = 1000;
/// In place of a secret.
const MASK: &str = "***";
/// A shorter value is no secret, and its mask would make texts unreadable.
const SECRET_MIN: usize = 4;

/// What is left out of texts about a server: its URL, and the values of its headers and variables.
#[derive(Clone, Default)]
pub(super) struct Redaction(Vec<String>);

impl Redaction {
    pub(super) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut secrets: Vec<String> =
            secrets.into_iter().filter(|secret| secret.len() >= SECRET_MIN).collect();
        // A secret may be a part of a longer one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets)
    }

    /// Returns the same with more secrets.
    pub(super) fn with(&self, secrets: impl IntoIterator<Item = String>) -> Self {
        Self::new(self.0.iter().cloned().chain(secrets))
    }

    /// Returns the text without secrets, readable and short.
    pub(super) fn text(&self, text: impl ToString) -> String {
        visible(&cut(self.masked(text.to_string()), TEXT_BYTES_MAX))
    }

    /// Returns the words of a server about a call without secrets, readable and short. Their lines stay.
    pub(super) fn words(&self, words: impl Into<String>) -> String {
        escaped_lines(&cut(self.masked(words.into()), WORDS_BYTES_MAX))
    }

    fn masked(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| text.replace(secret.as_str(), MASK))
    }
}

#[cfg(test)]
mod tests {
    use super::Redaction;

    #[test]
    fn texts_are_short_and_have_no_secrets() {
        let redaction = Redaction::new(["tok".to_owned(), "token".to_owned(), "token-1234".to_owned()]);
        assert_eq!(redaction.text("a token-1234, a token\u{1b}"), "a ***, a ***\\u{1b}");
        assert!(redaction.text("x".repeat(9999)).len() <= 500);
    }
}
