//! Texts with placeholders in braces, as `Delete {path}?`. Two braces stand for one.

use std::mem;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<P> {
    /// This text.
    Text(String),
    /// The value of a placeholder.
    Value(P),
}

/// Parses a text. `known` returns the placeholder of a name, or the reason why there is none. The error is the reason
/// with the placeholder.
pub fn parse<P>(template: &str, known: impl Fn(&str) -> Result<P, String>) -> Result<Vec<Piece<P>>, String> {
    let (mut pieces, mut text) = (Vec::new(), String::new());
    let mut rest = template.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '{' | '}' if rest.next_if_eq(&c).is_some() => text.push(c),
            '{' => {
                let mut name = String::new();
                loop {
                    match rest.next() {
                        Some('}') => break,
                        Some(c) => name.push(c),
                        None => return Err(format!("placeholder {{{name}: expected a closing brace")),
                    }
                }
                let value = known(&name).map_err(|why| format!("placeholder {{{name}}}: {why}"))?;
                pieces.push(Piece::Text(mem::take(&mut text)));
                pieces.push(Piece::Value(value));
            }
            '}' => return Err("a closing brace without a placeholder; write }} for one".to_owned()),
            c => text.push(c),
        }
    }
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

/// Returns the text with the values of its placeholders.
pub fn filled<P>(pieces: &[Piece<P>], mut push_value: impl FnMut(&mut String, &P)) -> String {
    let mut filled = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Value(value) => push_value(&mut filled, value),
        }
    }
    filled
}
