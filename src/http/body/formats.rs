//! Texts that the document describes by a format, a pattern or an enum.
//!
//! The description is documentation only: reading a [`Text`] accepts every text. The routes parse the text,
//! because the response to another text depends on the route. An invalid id in a path, for example, is an
//! unknown resource.

use crate::http::body::described::{described, inline};
use holdpoint_core::clock::Timestamp;
use poem_openapi::registry::{MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{Example, ParseError, ParseFromParameter, ParseResult, Type};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::{Debug, Display};
use std::marker::PhantomData;
use std::ops::Deref;

pub(in crate::http) type Id = Text<Uuid>;
/// A moment, in RFC 3339.
pub(in crate::http) type Time = Text<DateTime>;
/// A SHA-256 hash, in hexadecimal digits.
pub(in crate::http) type Hash = Text<Sha256>;
/// A position in a list, in decimal digits.
pub(in crate::http) type Position = Text<Decimal>;

/// A text that the document describes as `F`: one of the formats below, or an enum.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct Text<F> {
    text: String,
    format: PhantomData<fn() -> F>,
}

/// A description of texts.
pub(in crate::http) trait TextFormat {
    fn schema_ref() -> MetaSchemaRef;

    /// Registers the schema if it has a name.
    fn register(_registry: &mut Registry) {}
}

impl<T: Type> TextFormat for T {
    fn schema_ref() -> MetaSchemaRef {
        T::schema_ref()
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }
}

/// The format of ids.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Uuid;

/// The format of moments.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct DateTime;

/// The format of hashes.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Sha256;

/// The format of positions.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Decimal;

/// The format of the text of a search: at most 200 characters.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Searched;

impl TextFormat for Searched {
    fn schema_ref() -> MetaSchemaRef {
        inline(MetaSchema { max_length: Some(200), ..MetaSchema::new("string") })
    }
}

impl TextFormat for Uuid {
    fn schema_ref() -> MetaSchemaRef {
        formatted("uuid")
    }
}

impl TextFormat for DateTime {
    fn schema_ref() -> MetaSchemaRef {
        formatted("date-time")
    }
}

impl TextFormat for Sha256 {
    fn schema_ref() -> MetaSchemaRef {
        matching("^[0-9a-f]{64}$")
    }
}

impl TextFormat for Decimal {
    fn schema_ref() -> MetaSchemaRef {
        matching("^[0-9]{1,18}$")
    }
}

fn formatted(format: &'static str) -> MetaSchemaRef {
    inline(MetaSchema::new_with_format("string", format))
}

fn matching(pattern: &str) -> MetaSchemaRef {
    inline(MetaSchema { pattern: Some(pattern.to_owned()), ..MetaSchema::new("string") })
}

impl Id {
    /// Returns the id as a text.
    pub(in crate::http) fn of(id: impl Display) -> Self {
        id.to_string().into()
    }

    /// Returns another id than [`Example::example`].
    pub(in crate::http) fn another_example() -> Self {
        "01890a5d-ac96-774b-bcce-b302099a8058".to_owned().into()
    }
}

impl Example for Id {
    fn example() -> Self {
        "01890a5d-ac96-774b-bcce-b302099a8057".to_owned().into()
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        at.to_rfc3339().into()
    }
}

impl<F> From<String> for Text<F> {
    fn from(text: String) -> Self {
        Self { text, format: PhantomData }
    }
}

impl<F> From<Text<F>> for String {
    fn from(text: Text<F>) -> Self {
        text.text
    }
}

impl<F> Deref for Text<F> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

described! {
    Text<F> where F: TextFormat {
        name: String::name(),
        schema: F::schema_ref(),
        register: |registry| F::register(registry),
        parse: |value| String::parse_from_json(value).map(Self::from).map_err(ParseError::propagate),
        json: |text| Some(Value::String(text.text.clone())),
    }
}

impl<F: TextFormat> ParseFromParameter for Text<F> {
    fn parse_from_parameter(text: &str) -> ParseResult<Self> {
        Ok(text.to_owned().into())
    }
}
