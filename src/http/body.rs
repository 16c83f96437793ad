//! Bodies: JSON that can be read in one way only.

use super::error::ApiError;
use crate::domain::call::Input;
use crate::domain::strict_json;
use poem::{FromRequest, Request, RequestBody, Result};
use poem_openapi::payload::{ParsePayload, Payload};
use poem_openapi::registry::{MetaMediaType, MetaRequest, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseError, ParseFromJSON, ParseResult, ToJSON, Type};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use serde_json::Value;
use std::borrow::Cow;

/// Levels of arrays and objects in a body; `serde_json` itself stops at 128.
const DEPTH_MAX: usize = 64;

/// Reads a body as JSON text, if it says that it is one. An empty body is none.
pub(super) async fn text(request: &Request, body: &mut RequestBody) -> Result<Option<String>> {
    let data = <Vec<u8> as FromRequest>::from_request(request, body).await?;
    if data.is_empty() {
        return Ok(None);
    }
    let json = request.content_type().is_some_and(|content_type| {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    });
    if !json {
        return Err(ApiError::unsupported_media_type().into());
    }
    let text = String::from_utf8(data).map_err(|_| ApiError::bad_request("body: expected UTF-8"))?;
    Ok(Some(text))
}

/// A JSON body in which no key stands twice and no text holds U+0000.
#[derive(Debug)]
pub(super) struct Strict<T>(pub(super) T);

impl<T: ParseFromJSON> Payload for Strict<T> {
    const CONTENT_TYPE: &'static str = "application/json";

    fn schema_ref() -> MetaSchemaRef {
        T::schema_ref()
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }
}

impl<T: ParseFromJSON> ParsePayload for Strict<T> {
    const IS_REQUIRED: bool = T::IS_REQUIRED;

    async fn from_request(request: &Request, body: &mut RequestBody) -> Result<Self> {
        let bad = |reason: String| ApiError::bad_request(format!("body: {reason}"));
        let value = match text(request, body).await? {
            Some(text) => Some(strict_json::parse(&text, DEPTH_MAX).map_err(|error| bad(error.to_string()))?),
            None if T::IS_REQUIRED => return Err(bad("expected a JSON object".to_owned()).into()),
            None => None,
        };
        Ok(Self(T::parse_from_json(value).map_err(|error| bad(error.into_message()))?))
    }
}

impl<'a, T: ParseFromJSON> ApiExtractor<'a> for Strict<T> {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        <Self as Payload>::register(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        Some(MetaRequest {
            description: None,
            content: vec![MetaMediaType {
                content_type: Self::CONTENT_TYPE,
                schema: <Self as Payload>::schema_ref(),
            }],
            required: Self::IS_REQUIRED,
        })
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        <Self as ParsePayload>::from_request(request, body).await
    }
}

/// A JSON object of any keys.
#[derive(Debug, Clone)]
pub(super) struct JsonObject(pub(super) Input);

impl Type for JsonObject {
    const IS_REQUIRED: bool = true;

    type RawValueType = Self;
    type RawElementValueType = Self;

    fn name() -> Cow<'static, str> {
        "object".into()
    }

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Inline(Box::new(MetaSchema {
            additional_properties: Some(Box::new(MetaSchemaRef::Inline(Box::new(MetaSchema::ANY)))),
            ..MetaSchema::new("object")
        }))
    }

    fn as_raw_value(&self) -> Option<&Self> {
        Some(self)
    }

    fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a Self> + 'a> {
        Box::new(std::iter::once(self))
    }
}

impl ParseFromJSON for JsonObject {
    fn parse_from_json(value: Option<Value>) -> ParseResult<Self> {
        match value {
            Some(Value::Object(map)) => Ok(Self(map)),
            Some(other) => Err(ParseError::expected_type(other)),
            None => Err(ParseError::expected_input()),
        }
    }
}

impl ToJSON for JsonObject {
    fn to_json(&self) -> Option<Value> {
        Some(Value::Object(self.0.clone()))
    }
}
