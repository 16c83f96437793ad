//! Messages in the form of pages.

use crate::http::body::described::{described, inline};
use poem_openapi::registry::{MetaSchema, MetaSchemaRef};
use poem_openapi::types::ParseError;
use serde_json::Value;

/// The name of the schema.
const NAME: &str = "PageMessage";

/// A message as a page holds it. The dialects write it; the document only names the fields that all of them have.
#[derive(Debug)]
pub(in crate::http) struct PageMessage(pub(in crate::http) Value);

described! {
    PageMessage {
        name: NAME,
        schema: MetaSchemaRef::Reference(NAME.to_owned()),
        register: |registry| registry.create_schema::<Self, _>(NAME.to_owned(), |_| page_message()),
        parse: |value| value.map(Self).ok_or_else(ParseError::expected_input),
        json: |message| Some(message.0.clone()),
    }
}

fn page_message() -> MetaSchema {
    let field = |description, enum_items| {
        inline(MetaSchema { description: Some(description), enum_items, ..MetaSchema::new("string") })
    };
    let roles = ["user", "assistant"].map(Value::from).to_vec();
    MetaSchema {
        description: Some(
            "A message as the AI SDK holds it on a page, in the version that `format` names. \
             The types of the AI SDK describe its other fields.",
        ),
        required: vec!["id", "role"],
        properties: vec![
            ("id", field("The page's id for the message, otherwise its `message_id`.", Vec::new())),
            ("role", field("The author of the message.", roles)),
        ],
        additional_properties: Some(Box::new(inline(MetaSchema::ANY))),
        ..MetaSchema::new("object")
    }
}
