//! Previews: what a tool says, before the decision, that a call would do.

use crate::text::cut;
use crate::text::visible::escaped_lines;

/// Maximum length of a preview, in bytes.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// Maximum length of the reason why there is no preview, in bytes.
const FAILURE_BYTES_MAX: usize = 512;

/// What a tool says that a call would do, or why it says nothing. An approver reads it as plain text.
///
/// A preview often quotes a text of a third party. So characters that hide or reverse text are replaced by their numbers,
/// and what is stored and hashed is what every approver reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preview {
    /// What the call would do.
    Text(String),
    /// There is no preview, for this reason. The call can be decided even so.
    Failed(String),
}

impl Preview {
    /// Creates the preview with this text of a tool. A long text is cut visibly.
    pub fn text(said: &str) -> Self {
        Self::Text(shown(said, TEXT_BYTES_MAX))
    }

    /// Creates a preview that failed for this reason.
    pub fn failed(why: &str) -> Self {
        Self::Failed(shown(why, FAILURE_BYTES_MAX))
    }
}

/// Returns a text as an approver reads it: with lines and tabs, and without hidden characters.
fn shown(text: &str, bytes_max: usize) -> String {
    // A tool may send far more than is kept. Two characters become one at the most.
    let head: String = text.chars().take(2 * bytes_max + 2).collect();
    cut(escaped_lines(&head.replace("\r\n", "\n")), bytes_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_keeps_its_lines_and_shows_hidden_characters() {
        for (said, expected) in [
            ("2 files\n\ta.txt\r\n\tb.txt", "2 files\n\ta.txt\n\tb.txt"),
            ("to bob\u{202e}moc.live", "to bob\\u{202e}moc.live"),
            ("a\u{0}b\u{1b}[2Jc\rd", "a\\u{0}b\\u{1b}[2Jc\\rd"),
            ("", ""),
        ] {
            assert_eq!(Preview::text(said), Preview::Text(expected.to_owned()));
            assert_eq!(Preview::failed(said), Preview::Failed(expected.to_owned()));
        }
    }

    #[test]
    fn a_long_preview_is_cut_visibly() {
        let whole = "é".repeat(TEXT_BYTES_MAX / 2);
        assert_eq!(Preview::text(&whole), Preview::Text(whole.clone()));
        for (preview, bytes_max) in [
            (Preview::text(&"é".repeat(1 << 20)), TEXT_BYTES_MAX),
            (Preview::text(&"\u{202e}".repeat(1 << 20)), TEXT_BYTES_MAX),
            (Preview::failed(&"é".repeat(1 << 20)), FAILURE_BYTES_MAX),
        ] {
            let (Preview::Text(kept) | Preview::Failed(kept)) = preview;
            assert!(kept.len() <= bytes_max && kept.ends_with("[…cut]"), "{kept}");
        }
    }
}
