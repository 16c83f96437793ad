//! The words of a vocabulary, in bodies and in the document.

use holdpoint_core::vocabulary::Vocabulary;
use poem_openapi::registry::{MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseError, ParseFromJSON, ParseResult, ToJSON, Type};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

/// A value of a vocabulary, which is its word in JSON. The document describes the vocabulary as an enum.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct Word<T>(pub(in crate::http) T);

impl<T: Vocabulary> From<T> for Word<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T: Vocabulary + Send + Sync> Type for Word<T> {
    const IS_REQUIRED: bool = true;

    type RawValueType = Self;
    type RawElementValueType = Self;

    fn name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Reference(T::NAME.to_owned())
    }

    fn register(registry: &mut Registry) {
        registry.create_schema::<Self, _>(T::NAME.to_owned(), |_| MetaSchema {
            description: Some(T::description()),
            enum_items: T::WORDS.iter().map(|word| Value::from(*word)).collect(),
            ..MetaSchema::new("string")
        });
    }

    fn as_raw_value(&self) -> Option<&Self> {
        Some(self)
    }

    fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Self> + 'a> {
        Box::new(std::iter::once(self))
    }
}

impl<T: Vocabulary + Send + Sync> ParseFromJSON for Word<T> {
    fn parse_from_json(value: Option<Value>) -> ParseResult<Self> {
        let value = value.unwrap_or_default();
        let known = value.as_str().and_then(T::of_word);
        known.map(Self).ok_or_else(|| ParseError::expected_type(value))
    }
}

impl<T: Vocabulary + Send + Sync> ToJSON for Word<T> {
    fn to_json(&self) -> Option<Value> {
        Some(self.0.word().into())
    }
}
