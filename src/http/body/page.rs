//! Pages of lists.

use crate::http::body::described::{described, inline};
use crate::http::body::payload::{JSON, Json};
use crate::http::failure::error::ApiError;
use crate::http::middleware::in_flight::PageBytes;
use bytes::Bytes;
use futures::stream;
use poem::http::header::CONTENT_LENGTH;
use poem::{Body, IntoResponse, Response};
use poem_openapi::ApiResponse;
use poem_openapi::registry::{MetaResponses, MetaSchema, Registry};
use poem_openapi::types::{ParseError, ParseFromJSON, ParseFromParameter, ParseResult, ToJSON, Type};
use serde_json::json;
use std::io;
use std::marker::PhantomData;

/// The default size of a page, and the maximum.
const PAGE_SIZE: u64 = 50;
const PAGE_SIZE_MAX: u64 = 200;
/// The shortest output that is cut so that an item fits on a page, in bytes.
const OUTPUT_BYTES_MIN: usize = 256;

/// The size of a page as requested. [`page_size`] checks it.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct RequestedSize(u64);

described! {
    RequestedSize {
        name: u64::name(),
        schema: inline(MetaSchema {
            minimum: Some(1.0),
            maximum: Some(PAGE_SIZE_MAX as f64),
            default: Some(json!(PAGE_SIZE)),
            ..MetaSchema::new_with_format("integer", "uint64")
        }),
    }
}

impl ParseFromParameter for RequestedSize {
    fn parse_from_parameter(text: &str) -> ParseResult<Self> {
        u64::parse_from_parameter(text).map(Self).map_err(ParseError::propagate)
    }
}

/// Returns the size of a page, validated.
pub(in crate::http) fn page_size(requested: Option<RequestedSize>) -> Result<u64, ApiError> {
    match requested.map(|size| size.0) {
        None => Ok(PAGE_SIZE),
        Some(size @ 1..=PAGE_SIZE_MAX) => Ok(size),
        Some(_) => Err(ApiError::bad_request(format!("page_size: expected 1 to {PAGE_SIZE_MAX}"))),
    }
}

/// Approximate length of a chunk of a page, in bytes. The bytes of a chunk are released when the client has
/// taken it.
const CHUNK_BYTES: usize = 64 << 10;

/// A page of a list, as sent. Each item is serialized once, and items that do not fit go to the next page.
#[derive(Debug)]
pub(in crate::http) struct Paged<T> {
    /// The items as JSON, one entry for each call of [`push`](Self::push).
    results: Vec<String>,
    bytes: usize,
    page: PageBytes,
    /// The cursor of the last item.
    cursor: Option<String>,
    has_more: bool,
    of: PhantomData<fn() -> T>,
}

impl<T: ToJSON> Paged<T> {
    /// Returns an empty page for these bytes, which were taken before its rows are read.
    pub(in crate::http) fn new(page: PageBytes) -> Self {
        Self { results: Vec::new(), bytes: 0, page, cursor: None, has_more: false, of: PhantomData }
    }

    /// Adds the items of one position, and the cursor of the page after it. Returns false if the items do not
    /// fit: the page then ends before them. The first items always fit.
    pub(in crate::http) fn push(&mut self, cursor: String, shown: impl IntoIterator<Item = T>) -> bool {
        self.add(cursor, json(shown))
    }

    /// Adds the items of one position, like [`push`](Self::push). If the first items are longer than a page, they
    /// are shown with the longest outputs with which they fit. The argument of `shown` is the length of the longest
    /// output in bytes; `None` means that outputs are whole.
    pub(in crate::http) fn push_outputs<I: IntoIterator<Item = T>>(
        &mut self,
        cursor: String,
        mut shown: impl FnMut(Option<usize>) -> I,
    ) -> bool {
        let mut items = json(shown(None));
        let bytes_max = self.page.bytes_max;
        if self.bytes == 0 && items.len() > bytes_max {
            let mut output_bytes = OUTPUT_BYTES_MIN;
            items = json(shown(Some(output_bytes)));
            while output_bytes < bytes_max {
                output_bytes = output_bytes.saturating_mul(2);
                let longer = json(shown(Some(output_bytes)));
                if longer.len() > bytes_max {
                    break;
                }
                items = longer;
            }
        }
        self.add(cursor, items)
    }

    /// Adds the rows of a page of the store and finishes the page: `shown` returns the cursor after a row, and its item.
    pub(in crate::http) fn of_rows<R>(
        mut self,
        rows: &holdpoint_store::Page<R>,
        mut shown: impl FnMut(&R) -> (String, T),
    ) -> Self {
        for row in &rows.items {
            let (cursor, item) = shown(row);
            if !self.push(cursor, [item]) {
                break;
            }
        }
        self.finish(rows.has_more)
    }

    fn add(&mut self, cursor: String, shown: String) -> bool {
        let bytes = self.bytes.saturating_add(shown.len());
        if self.bytes > 0 && bytes > self.page.bytes_max {
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
    pub(in crate::http) fn finish(mut self, has_more: bool) -> Self {
        self.has_more |= has_more;
        self
    }

    /// Reverses the order of the items.
    pub(in crate::http) fn reversed(mut self) -> Self {
        self.results.reverse();
        self
    }
}

fn json<T: ToJSON>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_json_string()).collect();
    items.join(",")
}

impl<T> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        let Self { results, mut page, cursor, has_more, .. } = self;
        let next_cursor = cursor.filter(|_| has_more);
        let next_cursor =
            next_cursor.map_or_else(String::new, |cursor| format!(r#","next_cursor":{}"#, json!(cursor)));
        let end = format!(r#"],"has_more":{has_more}{next_cursor}}}"#);
        let mut chunks = vec![r#"{"results":["#.to_owned()];
        let mut comma = "";
        for part in results.into_iter().map(Some).chain([None]) {
            let (before, part) = match part {
                Some(item) => (comma, item),
                None => ("", end.clone()),
            };
            comma = ",";
            match chunks.last_mut() {
                Some(last) if last.len() < CHUNK_BYTES => {
                    last.push_str(before);
                    last.push_str(&part);
                }
                _ => chunks.push(format!("{before}{part}")),
            }
        }
        let length: usize = chunks.iter().map(String::len).sum();
        page.reserved.shrink(length);
        let chunks: Vec<_> = chunks
            .into_iter()
            .map(|chunk| page.reserved.split(chunk.len()).hold(Bytes::from(chunk)))
            .map(Ok::<_, io::Error>)
            .collect();
        Response::builder()
            .content_type(JSON)
            .header(CONTENT_LENGTH, length)
            .body(Body::from_bytes_stream(stream::iter(chunks)))
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
pub(in crate::http) struct PageOf<T: Type + ToJSON + ParseFromJSON> {
    /// The items of this page, in the order that the operation names.
    pub(in crate::http) results: Vec<T>,
    /// Whether the list has items after this page.
    pub(in crate::http) has_more: bool,
    /// The `cursor` of the next page. Absent on the last page.
    pub(in crate::http) next_cursor: Option<String>,
}
