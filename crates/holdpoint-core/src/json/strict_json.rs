//! JSON with one meaning for every parser.
//!
//! RFC 8259 leaves open what a repeated key means: `serde_json` keeps the last value, other parsers keep the
//! first. The inputs that a person approves must be the inputs that run, so this module rejects a repeated
//! key. It also rejects an integer beyond 64 bits, which `serde_json` rounds to a double, U+0000, which
//! not every database can store, and nesting beyond a limit.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_path_to_error::Track;
use std::cell::Cell;
use std::fmt;

/// Parses one JSON text.
///
/// # Errors
/// Returns the parser's error for malformed text, a repeated key, an integer beyond 64 bits, a NUL character,
/// or more than `depth_max` levels of arrays and objects.
pub fn parse(text: &str, depth_max: usize) -> Result<Value, serde_json::Error> {
    let numbers = NumberCounts::of(text);
    read(text, Strict { depth_left: depth_max, numbers: &numbers })
}

/// The reason why a text cannot be parsed, and the place.
#[derive(Debug)]
pub struct Unreadable {
    /// The parser's error, with its path into the text.
    pub error: serde_path_to_error::Error<serde_json::Error>,
    /// Whether the first fault in the text is an integer beyond 64 bits.
    pub integer_too_large: bool,
}

/// Parses one JSON text like [`parse`], and locates the error in the text.
///
/// # Errors
/// Returns the errors of [`parse`], with their paths.
pub fn parse_located(text: &str, depth_max: usize) -> Result<Value, Unreadable> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut track = Track::new();
    let numbers = NumberCounts::of(text);
    let strict = Strict { depth_left: depth_max, numbers: &numbers };
    let read = strict.deserialize(serde_path_to_error::Deserializer::new(&mut deserializer, &mut track));
    let value = read.map_err(|error| Unreadable {
        error: serde_path_to_error::Error::new(track.path(), error),
        integer_too_large: numbers.refused.get(),
    })?;
    deserializer.end().map_err(|error| Unreadable {
        // The path ends with the value; the fault is in the text after it.
        error: serde_path_to_error::Error::new(Track::new().path(), error),
        integer_too_large: false,
    })?;
    Ok(value)
}

fn read(text: &str, strict: Strict<'_>) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// The numbers of a text, counted during parsing. The parser does not report which of its doubles were
/// written as integers.
#[derive(Debug, Default)]
struct NumberCounts {
    /// How many numbers precede the first integer beyond 64 bits, if the text has one.
    before_too_large: Option<usize>,
    seen: Cell<usize>,
    refused: Cell<bool>,
}

impl NumberCounts {
    fn of(text: &str) -> Self {
        Self { before_too_large: before_too_large(text), ..Self::default() }
    }

    fn count<E: serde::de::Error>(&self) -> Result<(), E> {
        let seen = self.seen.replace(self.seen.get().saturating_add(1));
        if self.before_too_large == Some(seen) {
            self.refused.set(true);
            return Err(E::custom(
                "an integer of more than 64 bits; expected a smaller one, or a text of its digits",
            ));
        }
        Ok(())
    }
}

/// Returns how many numbers of a JSON text precede its first integer beyond 64 bits. For a text that is not
/// JSON the result is meaningless; the parser rejects such a text.
fn before_too_large(text: &str) -> Option<usize> {
    let mut rest = text;
    for n in 0.. {
        let number = loop {
            let start = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
            let (_, found) = rest.split_at(start);
            match found.strip_prefix('"') {
                Some(words) => rest = after_text(words)?,
                None => break found,
            }
        };
        let end = number.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let (number, after) = number.split_at(end.unwrap_or(number.len()));
        let integer = !number.contains(['.', 'e', 'E']);
        if integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
            return Some(n);
        }
        rest = after;
    }
    None
}

/// Returns the text after the end of a JSON string whose beginning was consumed.
fn after_text(mut words: &str) -> Option<&str> {
    loop {
        let (_, found) = words.split_at(words.find(['"', '\\'])?);
        match found.strip_prefix('"') {
            Some(after) => return Some(after),
            // Skips the escaped character. The digits after `\u` remain, and none of them ends the string.
            None => {
                let mut escaped = found.chars();
                escaped.nth(1)?;
                words = escaped.as_str();
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    depth_left: usize,
    numbers: &'a NumberCounts,
}

impl Strict<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(E::custom("nested too deeply")),
        }
    }

    fn text<E: serde::de::Error>(self, text: String) -> Result<String, E> {
        if text.contains('\0') {
            return Err(E::custom("the character U+0000 is not allowed"));
        }
        Ok(text)
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.numbers.count()?;
        Ok(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.numbers.count()?;
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.numbers.count()?;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.text(value.to_owned()).map(Value::String)
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.text(value).map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let key = self.text(key)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} appears twice")));
            }
            let value = entries.next_value_seed(inner)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ordinary_json_is_read_as_serde_json_reads_it() {
        for text in [r#"{"a":[1,-2,3.5,null,true,"é\n"],"b":{}}"#, "[]", "\"x\"", "null", "1e3"] {
            assert_eq!(parse(text, 32).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
    }

    #[test]
    fn ambiguous_or_malformed_json_is_refused() {
        let refused = [
            r#"{"a":1,"a":2}"#,
            r#"[{"a":{"b":1,"b":1}}]"#,
            "\"\\u0000\"",
            r#"{"a\u0000":1}"#,
            "{} x",
            "{",
            "",
        ];
        for text in refused {
            assert!(parse(text, 32).is_err(), "{text}");
        }
    }

    #[test]
    fn an_error_has_the_path_to_the_invalid_value() {
        let wrong = |text: &str| parse_located(text, 4).unwrap_err().error;
        for (text, path) in [
            (r#"{"a":[{},{"b":1,"b":1}]}"#, "a[1]"),
            (r#"{"a":[{},{"b":"\u0000"}]}"#, "a[1].b"),
            (r#"{"a":1,"a":1}"#, "."),
            ("{} x", "."),
        ] {
            assert_eq!(wrong(text).path().to_string(), path, "{text}");
        }
        assert!(wrong(r#"{"a":1,"a":1}"#).inner().to_string().starts_with("the key \"a\" appears twice"));
        assert_eq!(parse_located("[[1]]", 2).unwrap(), json!([[1]]));
    }

    #[test]
    fn an_integer_beyond_64_bits_is_refused_and_nothing_else_is() {
        for text in
            ["18446744073709551615", "-9223372036854775808", "1e22", "-0", "1.0", "10000000000000000000000.0"]
        {
            assert!(parse(text, 32).is_ok(), "{text}");
        }
        let read =
            r#"{"\\\"99999999999999999999":"\u0022\\","a":["12345678901234567890123",-1,2.5e3],"é":1}"#;
        assert!(parse(read, 32).is_ok());
        for (text, path) in [
            ("18446744073709551616", "."),
            (r#"{"a":["99999999999999999999",1,{"b":-9223372036854775809}]}"#, "a[2].b"),
        ] {
            assert!(parse(text, 32).is_err(), "{text}");
            let wrong = parse_located(text, 32).unwrap_err();
            assert_eq!((wrong.error.path().to_string().as_str(), wrong.integer_too_large), (path, true));
        }
        let earlier = r#"{"a":1,"a":2,"b":99999999999999999999}"#;
        assert!(!parse_located(earlier, 32).unwrap_err().integer_too_large);
    }

    #[test]
    fn depth_is_counted_in_arrays_and_objects() {
        assert_eq!(parse("[[1]]", 2).unwrap(), json!([[1]]));
        assert!(parse("[[[1]]]", 2).is_err());
        assert!(parse(r#"{"a":{"a":{}}}"#, 2).is_err());
    }
}
