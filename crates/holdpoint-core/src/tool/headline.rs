//! The question of a tool to the approver of a call: words of the operator, and values that a model chose.
//!
//! Surfaces show the values apart, so that no value can speak in the words of the operator.

use crate::text::placeholders::Piece;
use std::fmt;

/// A headline with the inputs of one call in it. A value is short, and each of its characters can be recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilledHeadline(Vec<Piece<String>>);

impl FilledHeadline {
    /// Returns the headline of these pieces, without the empty texts.
    pub fn new(pieces: impl Iterator<Item = Piece<String>>) -> Self {
        Self(pieces.filter(|piece| !matches!(piece, Piece::Text(text) if text.is_empty())).collect())
    }

    /// Returns the pieces, in their order.
    pub fn pieces(&self) -> &[Piece<String>] {
        &self.0
    }
}

impl fmt::Display for FilledHeadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(Piece::Text(text) | Piece::Value(text))| f.write_str(text))
    }
}
