//! Types that describe themselves in the OpenAPI document, because no derive of the framework has their description.

use poem_openapi::registry::{MetaSchema, MetaSchemaRef};

/// Describes a type: `name` is for the messages of the framework, `schema` for the document, and `register` makes a
/// schema with a name. With `parse` and `json` the type may be a field of a body.
macro_rules! described {
    (
        $type:ty $(where $($param:ident: $($bound:ident)&+),+)? {
            name: $name:expr,
            schema: $schema:expr,
            $(register: |$registry:ident| $register:expr,)?
            $(parse: |$value:ident| $parse:expr, json: |$kept:ident| $json:expr,)?
        }
    ) => {
        impl$(<$($param: $($bound +)+),+>)? poem_openapi::types::Type for $type {
            const IS_REQUIRED: bool = true;

            type RawValueType = Self;
            type RawElementValueType = Self;

            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn schema_ref() -> poem_openapi::registry::MetaSchemaRef {
                $schema
            }

            $(fn register($registry: &mut poem_openapi::registry::Registry) {
                $register
            })?

            fn as_raw_value(&self) -> Option<&Self> {
                Some(self)
            }

            fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Self> + 'a> {
                Box::new(std::iter::once(self))
            }
        }

        $crate::http::body::described::described_json! {
            [$(<$($param: $($bound +)+),+>)?] $type { $(|$value| $parse, |$kept| $json)? }
        }
    };
}
pub(in crate::http) use described;

macro_rules! described_json {
    ([$($generics:tt)*] $type:ty {}) => {};
    ([$($generics:tt)*] $type:ty { |$value:ident| $parse:expr, |$kept:ident| $json:expr }) => {
        impl $($generics)* poem_openapi::types::ParseFromJSON for $type {
            fn parse_from_json($value: Option<serde_json::Value>) -> poem_openapi::types::ParseResult<Self> {
                $parse
            }
        }

        impl $($generics)* poem_openapi::types::ToJSON for $type {
            fn to_json(&self) -> Option<serde_json::Value> {
                let $kept = self;
                $json
            }
        }
    };
}
pub(in crate::http) use described_json;

/// Returns a schema without a name, which is written where it is used.
pub(in crate::http) fn inline(schema: MetaSchema) -> MetaSchemaRef {
    MetaSchemaRef::Inline(Box::new(schema))
}
