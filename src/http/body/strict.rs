//! JSON bodies that have exactly one reading.

use crate::http::body::described::{described, inline};
use crate::http::failure::error::ApiError;
use crate::tools::InputError;
use bytes::Bytes;
use holdpoint_core::json::pointer;
use holdpoint_core::json::strict_json;
use holdpoint_core::json::surrogates::without_lone_halves;
use holdpoint_core::tool::input::Input;
use holdpoint_core::tool::secrets::ShownInput;
use poem::{Request, RequestBody, Result};
use poem_openapi::registry::{MetaMediaType, MetaRequest, MetaSchema, Registry};
use poem_openapi::types::{ParseError, Type};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Number, Value};
use serde_path_to_error::{Path, Segment};
use std::borrow::Cow;

/// Maximum nesting of arrays and objects in a body. `serde_json` itself stops at 128.
const DEPTH_MAX: usize = 64;

/// The content type of every request body.
pub(in crate::http) const CONTENT_TYPE: &str = "application/json";

/// Returns the body if its content type is JSON, or `None` for an empty body.
pub(in crate::http) async fn bytes(request: &Request, body: &mut RequestBody) -> Result<Option<Bytes>> {
    let bytes = body.take()?.into_bytes().await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let json = request.content_type().is_some_and(|content_type| {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    });
    if !json {
        return Err(ApiError::unsupported_media_type().into());
    }
    Ok(Some(bytes))
}

/// Returns the body as text.
pub(in crate::http) fn utf8(bytes: &[u8]) -> Result<&str, ApiError> {
    str::from_utf8(bytes).map_err(|_| ApiError::bad_request("body: expected UTF-8"))
}

/// Returns the JSON text of a body of words, with U+FFFD in place of a lone half of a surrogate pair. A page writes one
/// where it cut a text within a character, and would post it again with each later request.
pub(in crate::http) fn words(bytes: &[u8]) -> Result<Cow<'_, str>, ApiError> {
    utf8(bytes).map(without_lone_halves)
}

/// A JSON body without repeated keys and without U+0000 in a string. The body may be absent or null if `T` is
/// an `Option`.
#[derive(Debug)]
pub(in crate::http) struct Strict<T>(pub(in crate::http) T);

/// Parses a text that must be a JSON object. A lone half of a surrogate pair is read as U+FFFD, except in [`EXACT`]
/// fields.
pub(in crate::http) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    let mended = without_lone_halves(text);
    let value = strict_json::parse_located(&mended, DEPTH_MAX).map_err(|wrong| {
        let inputs = wrong.integer_too_large.then(|| inputs_pointer(wrong.error.path())).flatten();
        match inputs {
            Some((field, pointer)) => {
                let message = wrong.error.inner().to_string();
                ApiError::invalid_inputs(field, &[InputError { pointer, message }])
            }
            None => unreadable(wrong.error),
        }
    })?;
    // serde would also accept a list as the fields in order, and null as an absent body.
    if !value.is_object() {
        return Err(ApiError::bad_request("body: expected a JSON object"));
    }
    if matches!(mended, Cow::Owned(_)) {
        check_exact(&value)?;
    }
    serde_path_to_error::deserialize(value).map_err(unreadable)
}

/// The fields whose values run: what a person approves or answers is what a tool gets, so nothing in them may be
/// replaced.
const EXACT: [&str; 3] = ["validatedInputs", "validated_inputs", "content"];

/// Refuses a value with U+FFFD in an [`EXACT`] object. Its text had lone halves of surrogate pairs, and any U+FFFD may
/// have been one.
fn check_exact(value: &Value) -> Result<(), ApiError> {
    let Value::Object(fields) = value else {
        return value.as_array().into_iter().flatten().try_for_each(check_exact);
    };
    for (name, value) in fields {
        if !EXACT.contains(&name.as_str()) || !value.is_object() {
            check_exact(value)?;
            continue;
        }
        let mut replaced = Vec::new();
        find_replaced(value, "", &mut replaced);
        if !replaced.is_empty() {
            return Err(match name.as_str() {
                "content" => ApiError::invalid_content(&replaced),
                _ => ApiError::invalid_inputs(name, &replaced),
            });
        }
    }
    Ok(())
}

/// Finds the texts and keys with U+FFFD in a value at this pointer.
fn find_replaced(value: &Value, at: &str, found: &mut Vec<InputError>) {
    let is_replaced = |text: &str| text.contains(char::REPLACEMENT_CHARACTER);
    let error = |pointer: &str| InputError {
        pointer: pointer.to_owned(),
        message: "half of a surrogate pair, or U+FFFD beside one; send whole characters".to_owned(),
    };
    match value {
        Value::String(text) => found.extend(is_replaced(text).then(|| error(at))),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_replaced(item, &pointer::join(at, &index.to_string()), found);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields {
                let below = pointer::join(at, key);
                found.extend(is_replaced(key).then(|| error(&below)));
                find_replaced(value, &below, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Splits a path into the inputs of the only decision in a body: the name of the inputs field, and the JSON
/// pointer below that field.
fn inputs_pointer(path: &Path) -> Option<(&str, String)> {
    let mut segments = path.iter();
    let field = segments.find_map(|segment| match segment {
        Segment::Map { key } if key != "decide" => Some(key.as_str()),
        _ => None,
    });
    let field = field.filter(|field| matches!(*field, "validatedInputs" | "validated_inputs"))?;
    let pointer = segments.fold(String::new(), |pointer, segment| match segment {
        Segment::Seq { index } => pointer::join(&pointer, &index.to_string()),
        other => pointer::join(&pointer, &other.to_string()),
    });
    Some((field, pointer))
}

async fn read<T: Type + DeserializeOwned>(request: &Request, body: &mut RequestBody) -> Result<T> {
    match bytes(request, body).await?.filter(|bytes| T::IS_REQUIRED || bytes.trim_ascii() != b"null") {
        Some(bytes) => Ok(parse(utf8(&bytes)?)?),
        None if T::IS_REQUIRED => Err(ApiError::bad_request("body: expected a JSON object").into()),
        None => Ok(serde_path_to_error::deserialize(Value::Null).map_err(unreadable)?),
    }
}

/// The error for an unreadable body, with the name of the field. For a missing field, serde's path names the
/// object that lacks the field. A text that is not JSON has no field.
fn unreadable(error: serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let (path, reason) = (error.path().to_string(), error.inner().to_string());
    let missing = reason.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
    let known_path = Some(path.as_str()).filter(|path| *path != "." && error.inner().is_data());
    let field = match (known_path, missing) {
        (None, None) => "body".to_owned(),
        (None, Some((name, _))) => name.to_owned(),
        (Some(known_path), None) => known_path.to_owned(),
        (Some(known_path), Some((name, _))) => format!("{known_path}.{name}"),
    };
    ApiError::bad_request(format!("{field}: {reason}"))
}

impl<'a, T: Type + DeserializeOwned> ApiExtractor<'a> for Strict<T> {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::RequestObject];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        T::register(registry);
    }

    fn request_meta() -> Option<MetaRequest> {
        let content = vec![MetaMediaType { content_type: CONTENT_TYPE, schema: T::schema_ref() }];
        Some(MetaRequest { description: None, content, required: T::IS_REQUIRED })
    }

    async fn from_request(
        request: &'a Request,
        body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        Ok(Self(read(request, body).await?))
    }
}

/// A JSON object with arbitrary keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct JsonObject(pub(in crate::http) Input);

impl From<ShownInput> for JsonObject {
    fn from(shown: ShownInput) -> Self {
        Self(shown.into_input())
    }
}

described! {
    JsonObject {
        name: "object",
        schema: inline(MetaSchema {
            additional_properties: Some(Box::new(inline(MetaSchema::ANY))),
            ..MetaSchema::new("object")
        }),
        parse: |value| match value {
            Some(Value::Object(map)) => Ok(Self(map)),
            Some(other) => Err(ParseError::expected_type(other)),
            None => Err(ParseError::expected_input()),
        },
        json: |object| Some(Value::Object(object.0.clone())),
    }
}

/// A JSON number with all its digits.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(in crate::http) struct ExactNumber(pub(in crate::http) Number);

described! {
    ExactNumber {
        name: "number",
        schema: inline(MetaSchema::new("number")),
        parse: |value| match value {
            Some(Value::Number(number)) => Ok(Self(number)),
            Some(other) => Err(ParseError::expected_type(other)),
            None => Err(ParseError::expected_input()),
        },
        json: |number| Some(Value::Number(number.0.clone())),
    }
}
