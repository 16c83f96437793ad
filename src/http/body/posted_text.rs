//! The texts of a chat body, up to the length that can matter.

use crate::http::body::partial_json::Kept;
use crate::http::failure::error::ApiError;

/// Separator between the text parts of one message. A page shows the parts separately, but a reload shows one
/// text, and the text of two parts must not run together.
const BETWEEN_PARTS: &str = "\n";

/// The limits that decide how much of a body is kept.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Bounds {
    /// Maximum length of a user message, in bytes.
    pub(in crate::http) message_bytes: usize,
    /// Number of tools.
    pub(in crate::http) tools: usize,
}

/// The text of a message.
#[derive(Debug, Default)]
pub(in crate::http) struct PostedText {
    pub(in crate::http) text: String,
    /// The index of the first part that contains U+0000; 0 for a text without parts.
    pub(in crate::http) nul_at: Option<usize>,
}

/// Returns the text, or a prefix of it that is longer than `bytes_max` bytes.
pub(in crate::http) fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.ceil_char_boundary(bytes_max.saturating_add(1))).unwrap_or(text)
}

impl PostedText {
    pub(in crate::http) fn of(text: &str, with: Bounds) -> Self {
        let nul_at = text.contains('\0').then_some(0);
        Self { text: cut(text, with.message_bytes).to_owned(), nul_at }
    }

    pub(in crate::http) fn add(&mut self, part: &Self, index: usize, with: Bounds) {
        if part.text.is_empty() {
            return;
        }
        if part.nul_at.is_some() {
            self.nul_at.get_or_insert(index);
        }
        // The text is already too long.
        if self.text.len() > with.message_bytes {
            return;
        }
        if !self.text.is_empty() {
            self.text.push_str(BETWEEN_PARTS);
        }
        self.text.push_str(&part.text);
    }
}

/// What is kept of a value of a chat body: the fields of an object, one of a few words, or a text. Every other value
/// counts as one of another type.
macro_rules! kept {
    (object $type:ident { $($($key:literal)|+ => $field:ident),+ $(,)? } $(then $finish:ident)?) => {
        impl $crate::http::body::partial_json::Kept for $type {
            type With = $crate::http::body::posted_text::Bounds;

            fn of_object() -> Option<Self> {
                Some(Self::default())
            }

            fn field<'de, A: serde::de::MapAccess<'de>>(
                &mut self,
                key: &str,
                value: &mut A,
                reader: &mut $crate::http::body::partial_json::Reader<'_, Self::With>,
            ) -> Result<(), A::Error> {
                match key {
                    $($($key)|+ => self.$field = reader.value(value)?,)+
                    _ => reader.skip(value)?,
                }
                Ok(())
            }

            $(fn finish(&mut self) {
                self.$finish();
            })?
        }
    };
    (word $type:ident { $($($word:literal)|+ => $variant:ident),+ $(,)? }) => {
        kept! {
            text $type(word) => match word {
                $($($word)|+ => Some(Self::$variant),)+
                _ => None,
            }
        }
    };
    (text $type:ident($text:ident) => $kept:expr) => {
        impl $crate::http::body::partial_json::Kept for $type {
            type With = $crate::http::body::posted_text::Bounds;

            fn of_text($text: &str, _with: &Self::With) -> Option<Self> {
                $kept
            }
        }
    };
}
pub(in crate::http) use kept;

impl Kept for PostedText {
    type With = Bounds;

    fn of_text(text: &str, with: &Bounds) -> Option<Self> {
        Some(Self::of(text, *with))
    }
}

/// Returns the text of a user message, or an error if the text contains U+0000.
pub(in crate::http) fn content(words: &PostedText, field: &str) -> Result<String, ApiError> {
    match words.nul_at {
        Some(_) => Err(ApiError::bad_request(format!("{field}: the character U+0000 is not allowed"))),
        None => Ok(words.text.clone()),
    }
}
