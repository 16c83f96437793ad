//! Fields of bodies that may be null.

use crate::http::body::described::{described, inline};
use poem_openapi::registry::{MetaSchema, Registry};
use poem_openapi::types::{ParseError, ParseFromJSON, ToJSON};
use serde::Deserialize;
use serde_json::Value;

/// A word of the enum `T` in an optional field, which may also be null. The words are in the schema of the field,
/// together with null: a reference cannot be nullable, and `nullable` alone does not add null to the values of an
/// enum (OpenAPI 3.0.3, a clarification of 3.0.0).
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct WordOrNull<T>(pub(in crate::http) T);

described! {
    WordOrNull<T> where T: ParseFromJSON & ToJSON {
        name: T::name(),
        schema: {
            let mut words = Registry::new().create_fake_schema::<T>().enum_items;
            words.push(Value::Null);
            inline(MetaSchema { enum_items: words, nullable: true, ..MetaSchema::new("string") })
        },
        parse: |value| T::parse_from_json(value).map(Self).map_err(ParseError::propagate),
        json: |word| word.0.to_json(),
    }
}
