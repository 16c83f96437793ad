//! Messages in the form of pages.

use poem_openapi::registry::{MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseError, ParseFromJSON, ParseResult, ToJSON, Type};
use serde_json::Value;
use std::borrow::Cow;

/// A message as a page holds it. The dialects write it; the document only names the fields that all of them have.
#[derive(Debug)]
pub(in crate::http) struct PageMessage(pub(in crate::http) Value);

impl Type for PageMessage {
    const IS_REQUIRED: bool = true;

    type RawValueType = Value;
    type RawElementValueType = Value;

    fn name() -> Cow<'static, str> {
        "PageMessage".into()
    }

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Reference(Self::name().into_owned())
    }

    fn register(registry: &mut Registry) {
        let field = |description, enum_items| {
            let schema =
                MetaSchema { description: Some(description), enum_items, ..MetaSchema::new("string") };
            MetaSchemaRef::Inline(Box::new(schema))
        };
        let roles = ["user", "assistant"].map(Value::from).to_vec();
        registry.create_schema::<Self, _>(Self::name().into_owned(), |_| MetaSchema {
            description: Some(
                "A message as the AI SDK holds it on a page, in the version that `format` names. \
                 The types of the AI SDK describe its other fields.",
            ),
            required: vec!["id", "role"],
            properties: vec![
                ("id", field("The page's id for the message, otherwise its `message_id`.", Vec::new())),
                ("role", field("The author of the message.", roles)),
            ],
            additional_properties: Some(Box::new(MetaSchemaRef::Inline(Box::new(MetaSchema::ANY)))),
            ..MetaSchema::new("object")
        });
    }

    fn as_raw_value(&self) -> Option<&Value> {
        Some(&self.0)
    }

    fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Value> + 'a> {
        Box::new(std::iter::once(&self.0))
    }
}

impl ParseFromJSON for PageMessage {
    fn parse_from_json(value: Option<Value>) -> ParseResult<Self> {
        value.map(Self).ok_or_else(ParseError::expected_input)
    }
}

impl ToJSON for PageMessage {
    fn to_json(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}
