//! Fields of bodies that may be null.

use poem_openapi::registry::{MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseError, ParseFromJSON, ParseResult, ToJSON, Type};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

/// A word of the enum `T` in an optional field, which may also be null. The words are in the schema of the field,
/// together with null: a reference cannot be nullable, and `nullable` alone does not add null to the values of an
/// enum (OpenAPI 3.0.3, a clarification of 3.0.0).
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct WordOrNull<T>(pub(in crate::http) T);

impl<T: Type> Type for WordOrNull<T> {
    const IS_REQUIRED: bool = true;

    type RawValueType = Self;
    type RawElementValueType = Self;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn schema_ref() -> MetaSchemaRef {
        let mut words = Registry::new().create_fake_schema::<T>().enum_items;
        words.push(Value::Null);
        let schema = MetaSchema { enum_items: words, nullable: true, ..MetaSchema::new("string") };
        MetaSchemaRef::Inline(Box::new(schema))
    }

    fn as_raw_value(&self) -> Option<&Self> {
        Some(self)
    }

    fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Self> + 'a> {
        Box::new(std::iter::once(self))
    }
}

impl<T: ParseFromJSON> ParseFromJSON for WordOrNull<T> {
    fn parse_from_json(value: Option<Value>) -> ParseResult<Self> {
        T::parse_from_json(value).map(Self).map_err(ParseError::propagate)
    }
}

impl<T: ToJSON> ToJSON for WordOrNull<T> {
    fn to_json(&self) -> Option<Value> {
        self.0.to_json()
    }
}
