//! Rust source as tokens, without comments and with literals blanked out.

use std::iter::Peekable;
use std::str::Chars;

/// One token and the line on which the token starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) line: usize,
    pub(super) kind: Kind,
}

/// The part of the grammar that the rules need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A keyword or a name. A raw name has no `r#`.
    Word(String),
    /// `::`
    PathSeparator,
    /// Any other single character.
    Sign(char),
    /// A string, a character or a number, without its content.
    Literal,
}

impl Token {
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Word(own) if own == word)
    }

    pub(super) fn is_sign(&self, sign: char) -> bool {
        self.kind == Kind::Sign(sign)
    }

    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Splits source into tokens. Invalid source also gives tokens; the compiler reports the errors.
pub(super) fn tokenize(source: &str) -> Vec<Token> {
    let mut reader = Reader { rest: source.chars().peekable(), line: 1 };
    let mut tokens = Vec::new();
    while let Some(first) = reader.peek(0) {
        let line = reader.line;
        if let Some(kind) = reader.token(first) {
            tokens.push(Token { line, kind });
        }
    }
    tokens
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.rest.clone().nth(ahead)
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        if next == Some('\n') {
            self.line += 1;
        }
        next
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.next();
        }
    }

    fn take_while(&mut self, wanted: fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(next) = self.peek(0).filter(|next| wanted(*next)) {
            taken.push(next);
            self.next();
        }
        taken
    }

    /// Consumes at least one character. Returns `None` for whitespace, comments and lifetimes.
    fn token(&mut self, first: char) -> Option<Kind> {
        match (first, self.peek(1)) {
            ('/', Some('/')) => {
                self.take_while(|next| next != '\n');
                None
            }
            ('/', Some('*')) => {
                self.block_comment();
                None
            }
            (':', Some(':')) => {
                self.skip(2);
                Some(Kind::PathSeparator)
            }
            ('"', _) => {
                self.next();
                self.quoted('"');
                Some(Kind::Literal)
            }
            ('\'', second) => self.character_or_lifetime(second),
            _ if first.is_ascii_digit() => {
                self.take_while(is_word_part);
                Some(Kind::Literal)
            }
            _ if is_word_part(first) => Some(self.word()),
            _ => {
                self.next();
                (!first.is_whitespace()).then_some(Kind::Sign(first))
            }
        }
    }

    /// Consumes a block comment. Block comments nest in Rust.
    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    self.skip(2);
                    depth += 1;
                }
                (Some('*'), Some('/')) => {
                    self.skip(2);
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return;
                    }
                }
                (None, _) => return,
                _ => self.skip(1),
            }
        }
    }

    /// Consumes the rest of a literal after its opening quote.
    fn quoted(&mut self, quote: char) {
        while let Some(next) = self.next() {
            if next == '\\' {
                self.next();
            } else if next == quote {
                return;
            }
        }
    }

    fn character_or_lifetime(&mut self, second: Option<char>) -> Option<Kind> {
        if second == Some('\\') || self.peek(2) == Some('\'') {
            self.next();
            self.quoted('\'');
            return Some(Kind::Literal);
        }
        self.next();
        self.take_while(is_word_part);
        None
    }

    /// Consumes a name, a raw name (`r#type`), or a raw string, which starts like a name.
    fn word(&mut self) -> Kind {
        let word = self.take_while(is_word_part);
        if !matches!(word.as_str(), "r" | "br" | "cr") {
            return Kind::Word(word);
        }
        let mut hashes = 0;
        while self.peek(hashes) == Some('#') {
            hashes += 1;
        }
        match self.peek(hashes) {
            Some('"') => {
                self.skip(hashes + 1);
                self.raw_string(hashes);
                Kind::Literal
            }
            Some(next) if hashes == 1 && is_word_part(next) => {
                self.skip(1);
                Kind::Word(self.take_while(is_word_part))
            }
            _ => Kind::Word(word),
        }
    }

    /// Consumes a raw string up to a quote with the same number of `#` as at its start.
    fn raw_string(&mut self, hashes: usize) {
        while let Some(next) = self.next() {
            if next == '"' && (0..hashes).all(|ahead| self.peek(ahead) == Some('#')) {
                self.skip(hashes);
                return;
            }
        }
    }
}

fn is_word_part(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        tokenize(source).iter().filter_map(|token| token.word().map(str::to_owned)).collect()
    }

    #[test]
    fn comments_of_every_kind_are_gone() {
        assert_eq!(words("a // b\n/// c\n//! d\n/* e /* f */ g */ h /** i */"), ["a", "h"]);
    }

    #[test]
    fn strings_of_every_kind_are_blank() {
        assert_eq!(words(r##"a("b \" c", "\\") d"##), ["a", "d"]);
        assert_eq!(words(r###"a(r"b\") c(r#"d " e"#) f(br##"g "# h"##) i"###), ["a", "c", "f", "i"]);
        assert_eq!(words("a \"b // \" c"), ["a", "c"]);
    }

    #[test]
    fn a_quote_character_does_not_open_a_string() {
        assert_eq!(words(r"a '\'' b '\u{1F600}' c"), ["a", "b", "c"]);
        assert_eq!(words("a '\"' b"), ["a", "b"]);
    }

    #[test]
    fn lifetimes_are_not_characters() {
        assert_eq!(words("fn a<'x>(b: &'x str, c: &'static str)"), ["fn", "a", "b", "str", "c", "str"]);
    }

    #[test]
    fn raw_names_are_names() {
        assert_eq!(words("r#type r b r#\"x\"#"), ["type", "r", "b"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let tokens = tokenize("/* 1\n2 */\n\"3\n4\" // 4\nhere");
        assert_eq!(tokens.last(), Some(&Token { line: 5, kind: Kind::Word("here".into()) }));
    }
}
