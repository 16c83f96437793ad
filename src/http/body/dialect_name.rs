//! The names of dialects in parameters of requests. The names in the OpenAPI document come from the list of
//! dialects.

use holdpoint_stream::Dialect;
use poem_openapi::registry::{MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseError, ParseFromParameter, ParseResult, Type};
use std::borrow::Cow;
use std::iter;
use std::marker::PhantomData;

/// A dialect that a parameter names. `N` is the kind of the names.
pub(in crate::http) struct Named<N> {
    pub(in crate::http) dialect: &'static Dialect,
    kind: PhantomData<N>,
}

/// A kind of names.
pub(in crate::http) trait Names: Send + Sync {
    const SCHEMA: &'static str;
    const DESCRIPTION: &'static str;
    fn name(dialect: &Dialect) -> &'static str;
}

/// The names of streams.
pub(in crate::http) enum Protocol {}

impl Names for Protocol {
    const SCHEMA: &'static str = "Protocol";
    const DESCRIPTION: &'static str = "The dialects of a stream.";

    fn name(dialect: &Dialect) -> &'static str {
        dialect.name
    }
}

/// The names of the forms of messages.
pub(in crate::http) enum Format {}

impl Names for Format {
    const SCHEMA: &'static str = "Format";
    const DESCRIPTION: &'static str = "The format of messages.";

    fn name(dialect: &Dialect) -> &'static str {
        dialect.format
    }
}

impl<N: Names> Type for Named<N> {
    const IS_REQUIRED: bool = true;

    type RawValueType = Self;
    type RawElementValueType = Self;

    fn name() -> Cow<'static, str> {
        N::SCHEMA.into()
    }

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Reference(N::SCHEMA.to_owned())
    }

    fn register(registry: &mut Registry) {
        registry.create_schema::<Self, _>(N::SCHEMA.to_owned(), |_| MetaSchema {
            description: Some(N::DESCRIPTION),
            enum_items: Dialect::ALL.iter().map(|dialect| N::name(dialect).into()).collect(),
            ..MetaSchema::new("string")
        });
    }

    fn as_raw_value(&self) -> Option<&Self> {
        Some(self)
    }

    fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Self> + 'a> {
        Box::new(iter::once(self))
    }
}

impl<N: Names> ParseFromParameter for Named<N> {
    fn parse_from_parameter(value: &str) -> ParseResult<Self> {
        let named = Dialect::ALL.into_iter().find(|dialect| N::name(dialect) == value);
        let dialect = named.ok_or_else(|| ParseError::custom("Expect a valid enumeration value."))?;
        Ok(Self { dialect, kind: PhantomData })
    }
}
