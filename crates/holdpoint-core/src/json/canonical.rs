//! JSON values by meaning: equality, order and hash.
//!
//! This module makes every comparison of inputs: edits, repeated decisions, duplicates, grants, quorums,
//! claims, rules and schemas. Two values are the same if they are mathematically equal: `1` is `1.0`, and
//! `9007199254740993` is not `9007199254740992`. RFC 8785 alone does not give this, because it writes every
//! integer as the nearest double.

use super::{pointer, strict_json};
use crate::json::hex::hex;
use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};
use std::cmp::Ordering;
use std::fmt::Write;

/// The largest integer that a page in JavaScript shows exactly: 2^53 − 1 (ECMA-262,
/// `Number.MAX_SAFE_INTEGER`).
const SAFE_INTEGER_MAX: i64 = (1 << 53) - 1;

/// Returns the same text for all values with the same meaning: RFC 8785, except that numbers without a
/// fraction have all their digits.
///
/// The depth of the value has to be bounded.
pub fn canonical_json(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

/// Returns the SHA-256 of [`canonical_json`] as 64 hex digits.
pub fn canonical_hash(value: &Value) -> String {
    hex(&Sha256::digest(canonical_json(value)))
}

/// Whether two values are mathematically equal. The order of keys does not matter.
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => compare_numbers(one, other).is_eq(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => same_object(one, other),
        _ => one == other,
    }
}

/// Whether two objects are mathematically equal.
pub fn same_object(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    one.len() == other.len()
        && one.iter().all(|(key, value)| other.get(key).is_some_and(|other| same(value, other)))
}

/// Compares two numbers exactly.
pub fn compare_numbers(one: &Number, other: &Number) -> Ordering {
    match (ExactNumber::of(one), ExactNumber::of(other)) {
        (ExactNumber::Integer(one), ExactNumber::Integer(other)) => one.cmp(&other),
        (ExactNumber::Double(one), ExactNumber::Double(other)) => {
            one.partial_cmp(&other).unwrap_or(Ordering::Equal)
        }
        (ExactNumber::Integer(one), ExactNumber::Double(other)) => integer_to_double(one, other),
        (ExactNumber::Double(one), ExactNumber::Integer(other)) => integer_to_double(other, one).reverse(),
    }
}

/// Whether an integer is in the range in which JavaScript represents every integer.
pub fn is_safe_integer(number: &Number) -> bool {
    let max = Number::from(SAFE_INTEGER_MAX);
    let min = Number::from(-SAFE_INTEGER_MAX);
    compare_numbers(number, &max).is_le() && compare_numbers(number, &min).is_ge()
}

/// Whether a page in JavaScript shows the number exactly: a safe integer, or a double whose text there
/// (ECMA-262, Number::toString) parses here to the same number. That text has no exponent below 1e21 and at
/// most 17 significant digits: for 2^63 it is `9223372036854776000`.
fn is_shown_exactly(number: &Number) -> bool {
    match ExactNumber::of(number) {
        ExactNumber::Integer(_) => is_safe_integer(number),
        ExactNumber::Double(double) => {
            let text = ryu_js::Buffer::new().format_finite(double).to_owned();
            strict_json::parse(&text, 0).is_ok_and(|read| same(&read, &Value::Number(number.clone())))
        }
    }
}

/// Returns the JSON pointers (RFC 6901) of all numbers that a page in JavaScript cannot show exactly, each
/// with its text.
pub fn inexact_numbers(input: &Map<String, Value>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (key, value) in input {
        find_inexact(&pointer::join("", key), value, &mut found);
    }
    found
}

fn find_inexact(pointer: &str, value: &Value, found: &mut Vec<(String, String)>) {
    match value {
        Value::Number(number) => {
            if !is_shown_exactly(number) {
                found.push((pointer.to_owned(), number.to_string()));
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                find_inexact(&format!("{pointer}/{n}"), item, found);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                find_inexact(&pointer::join(pointer, key), value, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// A number as the parser represents it.
enum ExactNumber {
    Integer(i128),
    Double(f64),
}

impl ExactNumber {
    fn of(number: &Number) -> Self {
        match (number.as_i128(), number.as_f64()) {
            (Some(integer), _) => Self::Integer(integer),
            // JSON has no other numbers: without the feature `arbitrary_precision` each is one of the two.
            (None, double) => Self::Double(double.unwrap_or_default()),
        }
    }
}

/// Compares an integer of at most 65 bits with a finite double.
fn integer_to_double(integer: i128, double: f64) -> Ordering {
    // Every integer of the parser is nearer to zero than this bound. The cast below is exact within it.
    const BOUND: f64 = 1e30;
    if double.abs() > BOUND {
        return if double > 0.0 { Ordering::Less } else { Ordering::Greater };
    }
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the bound")]
    let whole = double.floor() as i128;
    integer.cmp(&whole).then(if double.fract() == 0.0 { Ordering::Equal } else { Ordering::Less })
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => write_number(text, number),
        Value::String(words) => write_text(text, words),
        Value::Array(items) => {
            text.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                write_value(text, item);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            // RFC 8785, 3.2.3: keys are sorted by their UTF-16 code units.
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
            text.push('{');
            for (n, (key, value)) in sorted.into_iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                write_text(text, key);
                text.push(':');
                write_value(text, value);
            }
            text.push('}');
        }
    }
}

fn write_number(text: &mut String, number: &Number) {
    let _infallible = match ExactNumber::of(number) {
        ExactNumber::Integer(integer) => write!(text, "{integer}"),
        // Minus zero is zero.
        ExactNumber::Double(0.0) => write!(text, "0"),
        ExactNumber::Double(double) if double.fract() == 0.0 => write!(text, "{double:.0}"),
        ExactNumber::Double(double) => write!(text, "{}", ryu_js::Buffer::new().format_finite(double)),
    };
}

/// Writes a string. `serde_json` escapes exactly the characters that RFC 8785, 3.2.2.2 escapes.
fn write_text(text: &mut String, words: &str) {
    let _infallible = write!(text, "{}", Value::from(words));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn number(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn numbers_are_the_same_if_and_only_if_they_are_equal() {
        for (one, other) in [
            ("1", "1.0"),
            ("0", "-0.0"),
            ("0", "-0"),
            ("1e2", "100"),
            ("9007199254740992", "9007199254740992.0"),
            ("9223372036854775808", "9223372036854775808.0"),
            ("1e22", "10000000000000000000000.0"),
            ("0.1", "1e-1"),
        ] {
            assert!(same(&number(one), &number(other)), "{one} {other}");
            assert_eq!(canonical_hash(&number(one)), canonical_hash(&number(other)), "{one} {other}");
        }
        for (one, other) in [
            ("9007199254740993", "9007199254740992"),
            ("9007199254740993", "9007199254740992.0"),
            ("9223372036854775807", "9223372036854775808.0"),
            ("18446744073709551615", "18446744073709551616.0"),
            ("-9223372036854775808", "-9223372036854775807"),
            ("1234567890123456789", "1234567890123456700"),
            ("1", "1.5"),
            ("-1", "-1.5"),
        ] {
            assert!(!same(&number(one), &number(other)), "{one} {other}");
            assert_ne!(canonical_hash(&number(one)), canonical_hash(&number(other)), "{one} {other}");
        }
    }

    #[test]
    fn integers_and_doubles_are_ordered_exactly() {
        let sorted = [
            "-1e300",
            "-9223372036854775808",
            "-9007199254740993",
            "-9007199254740992.0",
            "-1.5",
            "-1",
            "-0.5",
            "0",
            "5e-324",
            "1",
            "1.5",
            "2",
            "9007199254740991.5",
            "9007199254740992.0",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808.0",
            "18446744073709551615",
            "18446744073709551616.0",
            "1e31",
        ];
        let numbers: Vec<Number> = sorted.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        for (n, one) in numbers.iter().enumerate() {
            for (m, other) in numbers.iter().enumerate() {
                // Parsing loses the fraction: the value is half-way and rounds to even.
                let expected = if (n.min(m), n.max(m)) == (12, 13) { Ordering::Equal } else { n.cmp(&m) };
                assert_eq!(compare_numbers(one, other), expected, "{one} {other}");
            }
        }
    }

    #[test]
    fn a_hash_does_not_depend_on_the_order_of_keys_or_the_form_of_numbers() {
        let one: Value = serde_json::from_str(r#"{"b":1.0,"a":"é"}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"a":"\u00e9","b":1}"#).unwrap();
        assert_eq!(canonical_hash(&one), canonical_hash(&other));
        assert_eq!(canonical_hash(&one).len(), 64);
    }

    #[test]
    fn canonical_text_follows_rfc_8785_and_integers_keep_their_digits() {
        let value = json!({ "\u{20ac}": "\u{1}\"\\/\n", "\u{1f600}": 1e-7, "\u{fb33}": [1.0, 1e21, -0.0],
                            "1": 18_446_744_073_709_551_615_u64 });
        let expected = "{\"1\":18446744073709551615,\"\u{20ac}\":\"\\u0001\\\"\\\\/\\n\",\"\u{1f600}\":1e-7,\
                        \"\u{fb33}\":[1,1000000000000000000000,0]}";
        assert_eq!(canonical_json(&value), expected);
    }

    #[test]
    fn numbers_that_a_page_cannot_show_are_listed_with_their_pointers() {
        let input = json!({ "a": [1, { "b/~": 9_007_199_254_740_992_i64 }], "c": -9_007_199_254_740_992_i64,
                            "d": 9_007_199_254_740_991_i64, "e": [1e300, 1e16, 0.1, 1e21, -0.0, 1e-300],
                            "f": 9_223_372_036_854_775_808.0, "g": 1e20 });
        let found = inexact_numbers(input.as_object().unwrap());
        let expected = [
            ("/a/1/b~1~0", "9007199254740992"),
            ("/c", "-9007199254740992"),
            ("/f", "9.223372036854776e+18"),
            ("/g", "1e+20"),
        ];
        assert_eq!(found, expected.map(|(pointer, digits)| (pointer.to_owned(), digits.to_owned())));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (0..4_i64).prop_map(Value::from),
            prop::num::f64::NORMAL.prop_map(Value::from),
            (0..4_u8).prop_map(|n| Value::from(f64::from(n))),
            ".{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[ab]", inner), 0..3)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn values_are_the_same_exactly_if_their_canonical_texts_are_equal(one in any_json(), other in any_json()) {
            prop_assert!(same(&one, &one));
            prop_assert_eq!(same(&one, &other), canonical_json(&one) == canonical_json(&other));
            // A stored value reads back as the same value.
            let again: Value = serde_json::from_str(&one.to_string()).unwrap();
            prop_assert!(same(&one, &again));
        }

        #[test]
        fn canonical_text_without_large_integers_is_that_of_rfc_8785(value in any_json()) {
            fn large(value: &Value) -> bool {
                match value {
                    Value::Number(n) => n.as_f64().is_none_or(|n| n.abs() >= 9_007_199_254_740_992.0),
                    Value::Array(items) => items.iter().any(large),
                    Value::Object(fields) => fields.values().any(large),
                    _ => false,
                }
            }
            prop_assume!(!large(&value));
            let expected = serde_json_canonicalizer::to_vec(&value).unwrap();
            prop_assert_eq!(canonical_json(&value).into_bytes(), expected);
        }
    }
}
