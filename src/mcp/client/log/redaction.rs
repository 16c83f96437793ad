//! The secrets of a server, which no log line and no error contains.

use holdpoint_core::text::cut;
use holdpoint_core::text::visible::{escaped_lines, visible};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum length of a text from a server or a library, in bytes.
const TEXT_BYTES_MAX: usize = 500;
/// Maximum length of the words of a server about a call, in bytes.
const WORDS_BYTES_MAX: usize = 1000;
/// In place of a secret.
const MASK: &str = "***";
/// A shorter value is no secret, and its mask would make texts unreadable.
const SECRET_MIN: usize = 4;
/// Maximum number of secrets that are learnt. The oldest is forgotten first: no connection uses it any more.
const LEARNT_MAX: usize = 32;

/// What is left out of texts about a server: its URL, the values of its headers and variables, and what it is given while
/// the process runs. All clones share what is learnt.
#[derive(Clone, Default)]
pub(in crate::mcp) struct Redaction {
    known: Arc<[String]>,
    learnt: Arc<Mutex<VecDeque<String>>>,
}

impl Redaction {
    pub(in crate::mcp) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let known = secrets.into_iter().filter(|secret| secret.len() >= SECRET_MIN).collect();
        Self { known, learnt: Arc::default() }
    }

    /// Leaves out this secret too from now on.
    pub(in crate::mcp) fn learn(&self, secret: String) {
        let mut learnt = self.learnt.lock();
        if secret.len() < SECRET_MIN || self.known.contains(&secret) {
            return;
        }
        learnt.retain(|other| *other != secret);
        if learnt.len() == LEARNT_MAX {
            learnt.pop_front();
        }
        learnt.push_back(secret);
    }

    /// Returns the text without secrets, readable and short.
    pub(in crate::mcp) fn text(&self, text: impl ToString) -> String {
        visible(&cut(self.masked(text.to_string()), TEXT_BYTES_MAX))
    }

    /// Returns the words of a server about a call without secrets, readable and short. Their lines stay.
    pub(in crate::mcp) fn words(&self, words: impl Into<String>) -> String {
        escaped_lines(&cut(self.masked(words.into()), WORDS_BYTES_MAX))
    }

    fn masked(&self, text: String) -> String {
        let learnt = self.learnt.lock();
        let mut secrets: Vec<&String> = self.known.iter().chain(learnt.iter()).collect();
        // A secret may be a part of a longer one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.into_iter().fold(text, |text, secret| text.replace(secret.as_str(), MASK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_short_and_have_no_secrets() {
        let redaction = Redaction::new(["tok".to_owned(), "token".to_owned(), "token-1234".to_owned()]);
        assert_eq!(redaction.text("a token-1234, a token\u{1b}"), "a ***, a ***\\u{1b}");
        assert!(redaction.text("x".repeat(9999)).len() <= 500);
    }

    #[test]
    fn a_secret_that_is_learnt_is_left_out_by_all_clones_and_the_oldest_is_forgotten() {
        let redaction = Redaction::new(["token".to_owned()]);
        let clone = redaction.clone();
        for n in 0..=LEARNT_MAX {
            redaction.learn(format!("token-{n:04}"));
        }
        assert_eq!(clone.text("token-0000 token-0001"), "***-0000 ***");
        assert_eq!(redaction.learnt.lock().len(), LEARNT_MAX);
    }
}
