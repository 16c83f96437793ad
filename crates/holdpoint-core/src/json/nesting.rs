//! The depth of JSON text, measured while the text is written.

/// A JSON text, read as far as it is written.
#[derive(Debug, Clone, Default)]
pub struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the text has exceeded the limit.
    over: bool,
}

impl Nesting {
    /// Returns the part of the next chunk that precedes the first array or object beyond `depth_max` levels.
    /// After that point, all chunks are empty.
    pub fn within<'a>(&mut self, piece: &'a str, depth_max: usize) -> &'a str {
        match piece.bytes().position(|byte| !self.has_rest(byte, depth_max)) {
            Some(end) => piece.get(..end).unwrap_or_default(),
            None => piece,
        }
    }

    fn has_rest(&mut self, byte: u8, depth_max: usize) -> bool {
        if self.over {
            return false;
        }
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'[' | b'{' => {
                self.over = self.depth >= depth_max;
                self.depth += 1;
            }
            b']' | b'}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        !self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_before_the_first_level_that_is_too_deep() {
        for (text, within) in [
            ("", ""),
            ("[[]]", "[[]]"),
            ("[[[]]]", "[["),
            ("[{}, {}, []] é", "[{}, {}, []] é"),
            (r#"{"é[[[":"\\"}"#, r#"{"é[[[":"\\"}"#),
            (r#"["\"[[[", [[1]], [2]]"#, r#"["\"[[[", ["#),
            ("]]]][[[", "]]]][["),
        ] {
            let mut whole = Nesting::default();
            assert_eq!(whole.within(text, 2), within);
            let mut pieces = Nesting::default();
            let taken: String =
                text.char_indices().map(|(at, c)| pieces.within(&text[at..at + c.len_utf8()], 2)).collect();
            assert_eq!(taken, within, "in pieces");
        }
    }
}
