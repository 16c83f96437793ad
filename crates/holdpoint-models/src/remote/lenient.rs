//! JSON of model servers, whose types are odd but clear: a number as text, a text as a list of parts, `-1` for
//! no index. A value that says nothing counts as absent, and never fails the event around it.

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::fmt;
use std::marker::PhantomData;

/// The fields of an object in which servers put its text.
const TEXT_FIELDS: [&str; 5] = ["text", "content", "thinking", "summary", "reasoning"];

/// A text: a string, a number, or the texts in a list or an object.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Text(pub(super) Option<String>);

impl Text {
    /// Returns the text, if it is not empty.
    pub(super) fn filled(self) -> Option<String> {
        self.0.filter(|text| !text.is_empty())
    }

    pub(super) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text(Some(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Text, E> {
        Ok(Text(Some(text)))
    }

    fn visit_unit<E>(self) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Text, A::Error> {
        let mut joined = String::new();
        while let Some(Text(item)) = items.next_element()? {
            joined.push_str(&item.unwrap_or_default());
        }
        Ok(Text(Some(joined).filter(|text| !text.is_empty())))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Text, A::Error> {
        let mut found = Text(None);
        while let Some(field) = fields.next_key::<String>()? {
            if found.0.is_none() && TEXT_FIELDS.contains(&field.as_str()) {
                found = fields.next_value()?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Returns the text of a value, as [`Text`] reads it.
pub(super) fn text(value: &Value) -> String {
    Text::deserialize(value).ok().and_then(|text| text.0).unwrap_or_default()
}

/// An index: a whole number, or its digits. Any other value is no index.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Index(pub(super) Option<u64>);

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        Ok(Self(text.as_str().trim().parse().ok()))
    }
}

/// Returns a count, which may be a float or text. Negative counts and other values count as absent.
pub(super) fn count(value: Option<&Value>) -> Option<u64> {
    let whole = match value? {
        Value::Number(number) => return number.as_u64().or_else(|| whole(number.as_f64()?)),
        Value::String(digits) => digits.trim().parse::<f64>().ok()?,
        _ => return None,
    };
    self::whole(whole)
}

fn whole(number: f64) -> Option<u64> {
    // A cast of a float stops at the limits of the integer.
    (number.is_finite() && number >= 0.0).then_some(number as u64)
}

/// A list, or one item in place of a list. An item that is `null` is left out.
#[derive(Debug)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_bool<E>(self, _: bool) -> Result<List<T>, E> {
        Ok(List::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<List<T>, E> {
        Ok(List::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<List<T>, E> {
        Ok(List::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<List<T>, E> {
        Ok(List::default())
    }

    fn visit_str<E>(self, _: &str) -> Result<List<T>, E> {
        Ok(List::default())
    }

    fn visit_unit<E>(self) -> Result<List<T>, E> {
        Ok(List::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element::<Option<T>>()? {
            list.extend(item);
        }
        Ok(List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<List<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(|item| List(vec![item]))
    }
}

/// Returns the arguments of a call as JSON text: the text in a string, or the object itself as it is written.
pub(super) fn arguments(raw: Option<Box<RawValue>>) -> Option<String> {
    let raw = raw?;
    match raw.get() {
        "null" => None,
        written if written.starts_with('"') => serde_json::from_str(written).ok(),
        written => Some(written.to_owned()),
    }
}

/// Returns the whole arguments of a call: a text, or an object in place of it.
pub(super) fn whole_arguments(whole: Option<&Value>) -> Option<String> {
    match whole? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        whole => Some(whole.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_is_read_from_any_value_that_holds_one() {
        for (value, read) in [
            (json!("a"), Some("a")),
            (json!(5), Some("5")),
            (json!(-1.5), Some("-1.5")),
            (json!({"x": 1, "text": "a", "content": "b"}), Some("a")),
            (json!([{"type": "text", "text": "a"}, "b", null]), Some("ab")),
            (json!([]), None),
            (json!({"x": "a"}), None),
            (json!(true), None),
            (json!(null), None),
        ] {
            let text: Text = serde_json::from_str(&value.to_string()).unwrap();
            assert_eq!(text.0.as_deref(), read, "{value}");
            assert_eq!(self::text(&value), read.unwrap_or_default(), "{value}");
        }
    }

    #[test]
    fn an_index_is_a_whole_number_or_its_digits() {
        for (value, read) in
            [("0", Some(0)), ("\"7\"", Some(7)), ("-1", None), ("null", None), ("1.5", None), ("{}", None)]
        {
            assert_eq!(serde_json::from_str::<Index>(value).unwrap().0, read, "{value}");
        }
    }

    #[test]
    fn a_count_may_be_a_float_or_a_text() {
        for (value, read) in [
            (json!(3), Some(3)),
            (json!(3.0), Some(3)),
            (json!("4"), Some(4)),
            (json!(-1), None),
            (json!({}), None),
        ] {
            assert_eq!(count(Some(&value)), read, "{value}");
        }
    }

    #[test]
    fn a_list_may_be_one_item() {
        let read = |json: &str| serde_json::from_str::<List<Index>>(json).unwrap().0.len();
        assert_eq!([read("[1,null,2]"), read("null"), read("\"x\""), read("[]")], [2, 0, 0, 0]);
        assert_eq!(serde_json::from_str::<List<Value>>(r#"{"a":1}"#).unwrap().0, [json!({"a": 1})]);
    }
}
