//! Texts that have to fit a limit.

pub mod model_texts;
pub mod placeholders;
pub(crate) mod script;
pub mod visible;

/// Returns the text with U+FFFD in place of U+0000, which not every database can store.
pub fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Returns the text, or as much of it as fits into `bytes_max` with a mark that shows the cut.
pub fn cut(text: String, bytes_max: usize) -> String {
    cut_with(text, bytes_max, " […cut]")
}

/// Returns the text, or as much of it as fits into `bytes_max` with this mark at its end.
pub fn cut_with(mut text: String, bytes_max: usize, mark: &str) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max.saturating_sub(mark.len())));
        text.push_str(mark);
    }
    text
}
