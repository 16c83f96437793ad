//! Values for serde. The type that reads a value decides what the value may be.
//!
//! A text is also a number or a switch, because the environment has only texts. A number is also a text. Nothing
//! else is converted: no fraction is rounded, and no switch is a number.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use toml::{Table, Value};

/// A value that a type reads.
pub(crate) struct Lenient(pub(crate) Value);

/// The error of a value, without its key.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// A value of another type than expected.
    Kind(String),
    /// A value that its reader refuses.
    Refused(String),
    /// A name that is no key, with the keys that there are.
    UnknownKey(&'static [&'static str]),
    /// A key without its value.
    Missing(&'static str),
}

impl Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(why) | Self::Refused(why) => f.write_str(why),
            Self::UnknownKey(keys) => write!(f, "there is no such key, expected {}", one_of(keys)),
            Self::Missing(_) => f.write_str("expected a value; it is missing"),
        }
    }
}

impl std::error::Error for Unreadable {}

impl serde::de::Error for Unreadable {
    fn custom<T: Display>(why: T) -> Self {
        Self::Refused(why.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        // A text may be a secret under a wrong key.
        match found {
            Unexpected::Str(_) => Self::Kind(format!("expected {expected}, not a text")),
            found => Self::Kind(format!("expected {expected}, not {found}")),
        }
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn serde::de::Expected) -> Self {
        Self::Kind(format!("expected {expected}, not {found}"))
    }

    fn unknown_variant(word: &str, expected: &'static [&'static str]) -> Self {
        Self::Refused(format!("expected {}, not {word:?}", one_of(expected)))
    }

    fn unknown_field(_field: &str, expected: &'static [&'static str]) -> Self {
        Self::UnknownKey(expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }
}

fn one_of(words: &[&str]) -> String {
    match words {
        [] => "none".to_owned(),
        [word] => format!("`{word}`"),
        [first, second] => format!("`{first}` or `{second}`"),
        words => format!("one of `{}`", words.join("`, `")),
    }
}

impl Lenient {
    /// The error of a value of another kind than expected.
    fn is_no(&self, expected: &str) -> Unreadable {
        let found = match &self.0 {
            Value::Float(_) => return Unreadable::Kind("fractions are not allowed here".to_owned()),
            Value::Boolean(_) => return Unreadable::Kind("true and false are not allowed here".to_owned()),
            Value::String(_) | Value::Datetime(_) => "a text",
            Value::Integer(_) => "a number",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        };
        Unreadable::Kind(format!("expected {expected}, not {found}"))
    }

    /// Reads an integer within these bounds, which may be a text.
    fn integer<N: TryFrom<i128>>(self, bounds: RangeInclusive<i128>) -> Result<N, Unreadable> {
        let number = match &self.0 {
            Value::Integer(number) => i128::from(*number),
            Value::String(text) => {
                let parsed = text.parse();
                parsed.map_err(|_| Unreadable::Kind(format!("expected an integer, not {text:?}")))?
            }
            _ => return Err(self.is_no("an integer")),
        };
        N::try_from(number).map_err(|_| {
            let bound = match number < *bounds.start() {
                true => format!("at least {}", bounds.start()),
                false => format!("at most {}", bounds.end()),
            };
            Unreadable::Kind(format!("expected an integer of {bound}, not {number}"))
        })
    }
}

/// Reads each integer type within its bounds.
macro_rules! integers {
    ($($method:ident $visit:ident $number:ty),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
            let bounds = i128::from(<$number>::MIN)..=i128::from(<$number>::MAX);
            visitor.$visit(self.integer::<$number>(bounds)?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Lenient {
    type Error = Unreadable;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => visitor.visit_i64(number),
            Value::Float(number) => visitor.visit_f64(number),
            Value::Boolean(is_on) => visitor.visit_bool(is_on),
            Value::Datetime(time) => visitor.visit_string(time.to_string()),
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.into_iter().map(Lenient));
                let read = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(read)
            }
            Value::Table(fields) => visit_table(fields, visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        let is_on = match &self.0 {
            Value::Boolean(is_on) => *is_on,
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => true,
                "false" | "0" | "no" | "off" => false,
                _ => return Err(Unreadable::Kind(format!("expected true or false, not {text:?}"))),
            },
            _ => return Err(self.is_no("true or false")),
        };
        visitor.visit_bool(is_on)
    }

    integers! {
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        match self.0 {
            Value::String(text) => visitor.visit_string(text),
            Value::Integer(number) => visitor.visit_string(number.to_string()),
            Value::Datetime(time) => visitor.visit_string(time.to_string()),
            _ => Err(self.is_no("a text")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        if matches!(self.0, Value::Array(_)) {
            self.deserialize_any(visitor)
        } else {
            Err(self.is_no("a list"))
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        match self.0 {
            Value::Table(fields) => visit_table(fields, visitor),
            _ => Err(self.is_no("a table")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        let word = match self.0 {
            Value::String(word) => word,
            Value::Integer(number) => number.to_string(),
            _ => return Err(self.is_no("a word")),
        };
        visitor.visit_enum(word.into_deserializer())
    }

    forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

fn visit_table<'de, V: Visitor<'de>>(fields: Table, visitor: V) -> Result<V::Value, Unreadable> {
    let mut fields = MapDeserializer::new(fields.into_iter().map(|(name, value)| (name, Lenient(value))));
    let read = visitor.visit_map(&mut fields)?;
    fields.end()?;
    Ok(read)
}

impl IntoDeserializer<'_, Unreadable> for Lenient {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
