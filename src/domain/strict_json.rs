//! JSON that means one thing to everybody who reads it.
//!
//! RFC 8259 leaves open what a repeated key means; `serde_json` keeps the last, others the first. What a
//! person approves must be what runs, so a repeated key is an error here. So is U+0000, which Postgres
//! cannot store, and nesting beyond a limit.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_path_to_error::Track;
use std::fmt;

/// Parses one JSON text.
///
/// # Errors
/// The parser's sentence: malformed text, a repeated key, a NUL character, or more than `depth_max`
/// levels of arrays and objects.
pub(crate) fn parse(text: &str, depth_max: usize) -> Result<Value, serde_json::Error> {
    read(text, Strict { depth_left: depth_max })
}

/// Parses one JSON text as [`parse`] does, and says where in it something is wrong.
///
/// # Errors
/// The same, and the way to what is wrong.
pub(crate) fn parse_located(
    text: &str,
    depth_max: usize,
) -> Result<Value, serde_path_to_error::Error<serde_json::Error>> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut track = Track::new();
    let strict = Strict { depth_left: depth_max };
    let read = strict.deserialize(serde_path_to_error::Deserializer::new(&mut deserializer, &mut track));
    let value = read.map_err(|error| serde_path_to_error::Error::new(track.path(), error))?;
    // What follows the text is nowhere in it.
    let end = deserializer.end();
    end.map_err(|error| serde_path_to_error::Error::new(Track::new().path(), error))?;
    Ok(value)
}

fn read(text: &str, strict: Strict) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = strict.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict {
    depth_left: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left }),
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

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
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
                return Err(A::Error::custom(format_args!("the key {key:?} stands twice")));
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
    fn what_could_be_read_in_two_ways_is_refused() {
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
    fn what_is_wrong_is_said_with_the_way_to_it() {
        let wrong = |text: &str| parse_located(text, 4).unwrap_err();
        for (text, path) in [
            (r#"{"a":[{},{"b":1,"b":1}]}"#, "a[1]"),
            (r#"{"a":[{},{"b":"\u0000"}]}"#, "a[1].b"),
            (r#"{"a":1,"a":1}"#, "."),
            ("{} x", "."),
        ] {
            assert_eq!(wrong(text).path().to_string(), path, "{text}");
        }
        assert!(wrong(r#"{"a":1,"a":1}"#).inner().to_string().starts_with("the key \"a\" stands twice"));
        assert_eq!(parse_located("[[1]]", 2).unwrap(), json!([[1]]));
    }

    #[test]
    fn depth_is_counted_in_arrays_and_objects() {
        assert_eq!(parse("[[1]]", 2).unwrap(), json!([[1]]));
        assert!(parse("[[[1]]]", 2).is_err());
        assert!(parse(r#"{"a":{"a":{}}}"#, 2).is_err());
    }
}
