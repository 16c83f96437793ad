//! Pages of lists.

use super::error::ApiError;
use super::payload::{JSON, Json};
use poem::{IntoResponse, Response};
use poem_openapi::ApiResponse;
use poem_openapi::registry::{MetaResponses, MetaSchema, MetaSchemaRef, Registry};
use poem_openapi::types::{ParseError, ParseFromJSON, ParseFromParameter, ParseResult, ToJSON, Type};
use serde_json::json;
use std::borrow::Cow;
use std::marker::PhantomData;

/// The default size of a page, and the maximum.
const PAGE_SIZE: u64 = 50;
const PAGE_SIZE_MAX: u64 = 200;

/// The size of a page as requested. [`page_size`] checks it.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestedSize(u64);

impl Type for RequestedSize {
    const IS_REQUIRED: bool = true;

    type RawValueType = u64;
    type RawElementValueType = u64;

    fn name() -> Cow<'static, str> {
        u64::name()
    }

    fn schema_ref() -> MetaSchemaRef {
        MetaSchemaRef::Inline(Box::new(MetaSchema {
            minimum: Some(1.0),
            maximum: Some(PAGE_SIZE_MAX as f64),
            default: Some(json!(PAGE_SIZE)),
            ..MetaSchema::new_with_format("integer", "uint64")
        }))
    }

    fn as_raw_value(&self) -> Option<&u64> {
        Some(&self.0)
    }

    fn raw_element_iter<'a>(&'a self) -> Box<dyn Iterator<Item = &'a u64> + 'a> {
        Box::new(std::iter::once(&self.0))
    }
}

impl ParseFromParameter for RequestedSize {
    fn parse_from_parameter(text: &str) -> ParseResult<Self> {
        u64::parse_from_parameter(text).map(Self).map_err(ParseError::propagate)
    }
}

/// Returns the size of a page, validated.
pub(super) fn page_size(requested: Option<RequestedSize>) -> Result<u64, ApiError> {
    match requested.map(|size| size.0) {
        None => Ok(PAGE_SIZE),
        Some(size @ 1..=PAGE_SIZE_MAX) => Ok(size),
        Some(_) => Err(ApiError::bad_request(format!("page_size: expected 1 to {PAGE_SIZE_MAX}"))),
    }
}

/// A page of a list, as sent. Each item is serialized once, and items that do not fit go to the next page.
#[derive(Debug)]
pub(super) struct Paged<T> {
    /// The items as JSON, one entry for each call of [`push`](Self::push).
    results: Vec<String>,
    bytes: usize,
    bytes_max: usize,
    /// The cursor of the last item.
    cursor: Option<String>,
    has_more: bool,
    of: PhantomData<fn() -> T>,
}

impl<T: ToJSON> Paged<T> {
    /// Returns an empty page that takes at most `bytes_max` bytes of items.
    pub(super) fn new(bytes_max: usize) -> Self {
        let results = Vec::new();
        Self { results, bytes: 0, bytes_max, cursor: None, has_more: false, of: PhantomData }
    }

    /// Adds the items of one position, and the cursor of the page after it. Returns false if the items do not
    /// fit: the page then ends before them. The first items always fit.
    pub(super) fn push(&mut self, cursor: String, shown: impl IntoIterator<Item = T>) -> bool {
        let shown: Vec<String> = shown.into_iter().map(|item| item.to_json_string()).collect();
        let shown = shown.join(",");
        let bytes = self.bytes.saturating_add(shown.len());
        if self.bytes > 0 && bytes > self.bytes_max {
            self.has_more = true;
            return false;
        }
        (self.bytes, self.cursor) = (bytes, Some(cursor));
        if !shown.is_empty() {
            self.results.push(shown);
        }
        true
    }

    /// Finishes the page. `has_more` is whether the list has items beyond those that were pushed.
    pub(super) fn finish(mut self, has_more: bool) -> Self {
        self.has_more |= has_more;
        self
    }

    /// Reverses the order of the items.
    pub(super) fn reversed(mut self) -> Self {
        self.results.reverse();
        self
    }
}

impl<T> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let results = self.results.join(",");
        let next_cursor = self.cursor.filter(|_| self.has_more);
        let next_cursor =
            next_cursor.map_or_else(String::new, |cursor| format!(r#","next_cursor":{}"#, json!(cursor)));
        let page = format!(r#"{{"results":[{results}],"has_more":{}{next_cursor}}}"#, self.has_more);
        Response::builder().content_type(JSON).body(page)
    }
}

impl<T: Type + ToJSON + ParseFromJSON> ApiResponse for Paged<T> {
    fn meta() -> MetaResponses {
        Json::<PageOf<T>>::meta()
    }

    fn register(registry: &mut Registry) {
        PageOf::<T>::register(registry);
    }
}

// This type documents a page; `Paged` is the type that is sent.
/// A page of a list.
#[derive(Debug, poem_openapi::Object)]
#[oai(skip_serializing_if_is_none)]
pub(super) struct PageOf<T: Type + ToJSON + ParseFromJSON> {
    /// The items of this page, in the order that the operation names.
    pub(super) results: Vec<T>,
    /// Whether the list has items after this page.
    pub(super) has_more: bool,
    /// The `cursor` of the next page. Absent on the last page.
    pub(super) next_cursor: Option<String>,
}
