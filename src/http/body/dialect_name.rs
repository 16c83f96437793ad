//! The names of dialects in parameters of requests. The names in the OpenAPI document come from the list of
//! dialects.

use crate::http::body::described::described;
use holdpoint_stream::Dialect;
use poem_openapi::registry::{MetaSchema, MetaSchemaRef};
use poem_openapi::types::{ParseError, ParseFromParameter, ParseResult};
use std::marker::PhantomData;

/// A dialect that a parameter names. `N` is the kind of the names.
pub(in crate::http) struct DialectName<N> {
    pub(in crate::http) dialect: &'static Dialect,
    kind: PhantomData<N>,
}

/// A kind of names.
pub(in crate::http) trait DialectNames: Send + Sync {
    const SCHEMA: &'static str;
    const DESCRIPTION: &'static str;
    fn name(dialect: &Dialect) -> &'static str;
}

/// The names of streams.
pub(in crate::http) enum Protocol {}

impl DialectNames for Protocol {
    const SCHEMA: &'static str = "Protocol";
    const DESCRIPTION: &'static str = "The dialects of a stream.";

    fn name(dialect: &Dialect) -> &'static str {
        dialect.name
    }
}

/// The names of the forms of messages.
pub(in crate::http) enum Format {}

impl DialectNames for Format {
    const SCHEMA: &'static str = "Format";
    const DESCRIPTION: &'static str = "The format of messages.";

    fn name(dialect: &Dialect) -> &'static str {
        dialect.format
    }
}

described! {
    DialectName<N> where N: DialectNames {
        name: N::SCHEMA,
        schema: MetaSchemaRef::Reference(N::SCHEMA.to_owned()),
        register: |registry| registry.create_schema::<Self, _>(N::SCHEMA.to_owned(), |_| MetaSchema {
            description: Some(N::DESCRIPTION),
            enum_items: Dialect::ALL.iter().map(|dialect| N::name(dialect).into()).collect(),
            ..MetaSchema::new("string")
        }),
    }
}

impl<N: DialectNames> ParseFromParameter for DialectName<N> {
    fn parse_from_parameter(value: &str) -> ParseResult<Self> {
        let named = Dialect::ALL.iter().find(|dialect| N::name(dialect) == value);
        let dialect = named.ok_or_else(|| ParseError::custom("Expect a valid enumeration value."))?;
        Ok(Self { dialect, kind: PhantomData })
    }
}
