//! A one-pass JSON reader that keeps only the requested parts of a text.
//!
//! A part that is not kept takes no memory, whatever its shape: a text of some megabytes can hold millions of
//! values.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

/// Maximum number of keys that are compared at once, over all objects around a value. An object beyond this
/// limit counts as an object that may repeat a key.
const KEYS_MAX: usize = 100_000;
/// Maximum length of a repeated key in an error, in characters.
const KEY_SHOWN: usize = 64;

/// The value found at the place of a `T`.
#[derive(Debug, Default)]
pub(in crate::http) enum FieldValue<T> {
    /// No value.
    #[default]
    Absent,
    /// `null`.
    Null,
    /// A value of another type.
    Other,
    /// A `T`.
    Is(T),
}

impl<T> FieldValue<T> {
    /// Returns the `T`, if the value is one.
    pub(in crate::http) fn is(self) -> Option<T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Absent | Self::Null | Self::Other => None,
        }
    }

    /// Returns a reference to the `T`, if the value is one.
    pub(in crate::http) fn as_is(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Absent | Self::Null | Self::Other => None,
        }
    }

    /// Returns the `T`, or `None` for an absent value and `null`.
    ///
    /// # Errors The result of `other`, for a value of another type.
    pub(in crate::http) fn given<E>(self, other: impl FnOnce() -> E) -> Result<Option<T>, E> {
        match self {
            Self::Absent | Self::Null => Ok(None),
            Self::Other => Err(other()),
            Self::Is(value) => Ok(Some(value)),
        }
    }

    fn of(kept: Option<T>) -> Self {
        kept.map_or(Self::Other, Self::Is)
    }
}

/// The kept parts of one JSON value. A JSON type whose method is not implemented counts as a value of another
/// type.
pub(in crate::http) trait Kept: Sized {
    /// The context of the reader.
    type With;

    /// Keeps a string.
    fn of_text(_text: &str, _with: &Self::With) -> Option<Self> {
        None
    }

    /// Keeps a boolean.
    fn of_bool(_value: bool) -> Option<Self> {
        None
    }

    /// Keeps a list.
    fn of_list<'de, A: SeqAccess<'de>>(
        items: &mut A,
        reader: &mut Reader<'_, Self::With>,
    ) -> Result<Option<Self>, A::Error> {
        reader.skip_rest(items)?;
        Ok(None)
    }

    /// Keeps an object, before its fields are read.
    fn of_object() -> Option<Self> {
        None
    }

    /// Keeps one field of an object. The last value of a repeated key counts.
    fn field<'de, A: MapAccess<'de>>(
        &mut self,
        _key: &str,
        value: &mut A,
        reader: &mut Reader<'_, Self::With>,
    ) -> Result<(), A::Error> {
        reader.skip(value)
    }

    /// Runs after the last field of an object.
    fn finish(&mut self) {}
}

/// Keeps nothing.
struct Nothing<W>(PhantomData<W>);

impl<W> Kept for Nothing<W> {
    type With = W;
}

/// One pass over a text.
pub(in crate::http) struct Reader<'w, W> {
    /// The context of the kept parts.
    pub(in crate::http) with: &'w W,
    /// Number of keys in the objects around the current value.
    keys: usize,
    repeated: Option<String>,
}

/// Reads a JSON text. The second result names a key that an object may repeat, if there is one.
///
/// # Errors The text is not JSON, or its nesting exceeds the limit of the parser.
pub(in crate::http) fn read<T: Kept>(
    text: &str,
    with: &T::With,
) -> Result<(FieldValue<T>, Option<String>), serde_json::Error> {
    let mut reader = Reader { with, keys: 0, repeated: None };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = ValueSeed::<T>::of(&mut reader).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok((found, reader.repeated))
}

impl<W> Reader<'_, W> {
    /// Reads the value of a field.
    pub(in crate::http) fn value<'de, T: Kept<With = W>, A: MapAccess<'de>>(
        &mut self,
        fields: &mut A,
    ) -> Result<FieldValue<T>, A::Error> {
        fields.next_value_seed(ValueSeed::of(self))
    }

    /// Reads the next item of a list.
    pub(in crate::http) fn item<'de, T: Kept<With = W>, A: SeqAccess<'de>>(
        &mut self,
        items: &mut A,
    ) -> Result<Option<FieldValue<T>>, A::Error> {
        items.next_element_seed(ValueSeed::of(self))
    }

    /// Skips the value of a field.
    pub(in crate::http) fn skip<'de, A: MapAccess<'de>>(&mut self, fields: &mut A) -> Result<(), A::Error> {
        self.value::<Nothing<W>, A>(fields).map(|_| ())
    }

    /// Skips the rest of a list.
    pub(in crate::http) fn skip_rest<'de, A: SeqAccess<'de>>(
        &mut self,
        items: &mut A,
    ) -> Result<(), A::Error> {
        while self.item::<Nothing<W>, A>(items)?.is_some() {}
        Ok(())
    }

    /// Compares a key with the earlier keys of its object.
    fn compare<'de>(&mut self, key: Cow<'de, str>, before: &mut HashSet<Cow<'de, str>>) {
        if self.repeated.is_some() {
            return;
        }
        if before.contains(&key) {
            let shown: String = key.chars().take(KEY_SHOWN).collect();
            self.repeated = Some(format!("the key {shown:?} appears twice"));
        } else if self.keys == KEYS_MAX {
            self.repeated = Some(format!("more than {KEYS_MAX} keys at once"));
        } else {
            before.insert(key);
            self.keys += 1;
        }
    }
}

/// One value of the text.
struct ValueSeed<'r, 'w, T: Kept> {
    reader: &'r mut Reader<'w, T::With>,
    kept: PhantomData<T>,
}

impl<'r, 'w, T: Kept> ValueSeed<'r, 'w, T> {
    fn of(reader: &'r mut Reader<'w, T::With>) -> Self {
        Self { reader, kept: PhantomData }
    }
}

impl<'de, T: Kept> DeserializeSeed<'de> for ValueSeed<'_, '_, T> {
    type Value = FieldValue<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldValue<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Kept> Visitor<'de> for ValueSeed<'_, '_, T> {
    type Value = FieldValue<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<FieldValue<T>, E> {
        Ok(FieldValue::of(T::of_bool(value)))
    }

    fn visit_i64<E>(self, _value: i64) -> Result<FieldValue<T>, E> {
        Ok(FieldValue::Other)
    }

    fn visit_u64<E>(self, _value: u64) -> Result<FieldValue<T>, E> {
        Ok(FieldValue::Other)
    }

    fn visit_f64<E>(self, _value: f64) -> Result<FieldValue<T>, E> {
        Ok(FieldValue::Other)
    }

    fn visit_unit<E>(self) -> Result<FieldValue<T>, E> {
        Ok(FieldValue::Null)
    }

    fn visit_str<E>(self, value: &str) -> Result<FieldValue<T>, E> {
        Ok(FieldValue::of(T::of_text(value, self.reader.with)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<FieldValue<T>, A::Error> {
        Ok(FieldValue::of(T::of_list(&mut items, self.reader)?))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<FieldValue<T>, A::Error> {
        let reader = self.reader;
        let mut kept = T::of_object();
        let mut keys = HashSet::new();
        while let Some(key) = fields.next_key_seed(Key)? {
            match &mut kept {
                Some(kept) => kept.field(&key, &mut fields, reader)?,
                None => reader.skip(&mut fields)?,
            }
            reader.compare(key, &mut keys);
        }
        reader.keys = reader.keys.saturating_sub(keys.len());
        if let Some(kept) = &mut kept {
            kept.finish();
        }
        Ok(FieldValue::of(kept))
    }
}

/// A key, borrowed from the text unless it contains an escape.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repeated(text: &str) -> Option<String> {
        read::<Nothing<()>>(text, &()).unwrap().1
    }

    #[test]
    fn a_key_that_is_repeated_anywhere_is_named() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"[{"b":{"a":1,"\u0061":2}}]"#,
            r#"{"a":{"a":1},"b":[{"a":1},{"a":1,"b":2,"a":3}]}"#,
        ] {
            assert_eq!(repeated(text).unwrap(), r#"the key "a" appears twice"#, "{text}");
        }
        for text in [r#"{"a":{"a":1},"b":[{"a":1},{"a":1}]}"#, r#"{"a\u0000":"\u0000"}"#, "null"] {
            assert_eq!(repeated(text), None, "{text}");
        }
    }

    #[test]
    fn more_keys_than_the_limit_count_as_a_repeated_key() {
        let of = |count: usize| {
            let fields: Vec<String> = (0..count).map(|n| format!(r#""{n}":0"#)).collect();
            format!("{{{}}}", fields.join(","))
        };
        assert_eq!(repeated(&of(KEYS_MAX)), None);
        assert_eq!(repeated(&of(KEYS_MAX + 1)).unwrap(), "more than 100000 keys at once");
        // Keys of a finished object are not counted.
        assert_eq!(repeated(&format!("[{0},{0}]", of(KEYS_MAX / 2 + 1))), None);
        // Earlier keys of the enclosing objects are counted.
        assert!(repeated(&format!(r#"{{"a":0,"b":0,"c":{}}}"#, of(KEYS_MAX - 1))).is_some());
    }

    #[test]
    fn malformed_or_too_deep_json_is_an_error_also_in_skipped_values() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for text in ["{", "{} x", "", r#"{"a":01}"#, r#"{"a":1e999}"#, &deep(200)] {
            assert!(read::<Nothing<()>>(text, &()).is_err(), "{text}");
        }
        assert!(read::<Nothing<()>>(&deep(100), &()).is_ok());
    }
}
