//! Answers: the payloads and pages that several resources share.

use super::error::ApiError;
use poem::{IntoResponse, Response};
use poem_openapi::payload::Payload;
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchemaRef, Registry};
use poem_openapi::types::{ToJSON, Type};
use poem_openapi::{ApiResponse, Tags};

/// The resources, as groups of the document.
#[derive(Tags)]
pub(super) enum Tag {
    /// Asking a model, and answering for a person.
    Chat,
    /// Conversations.
    Threads,
    /// From a user message to the final answer.
    Runs,
    /// Calls and their evidence.
    ToolCalls,
    /// Calls that people are, or were, asked about.
    Approvals,
    /// What the model may ask for.
    Tools,
    /// What happens, as it happens.
    Events,
}

/// JSON, documented with its bare content type: some generators take no parameters there. As a whole answer,
/// status 200.
#[derive(Debug)]
pub(super) struct Json<T>(pub(super) T);

impl<T: ToJSON> Payload for Json<T> {
    const CONTENT_TYPE: &'static str = "application/json";

    fn schema_ref() -> MetaSchemaRef {
        T::schema_ref()
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }
}

impl<T: ToJSON> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        Response::builder().content_type(Self::CONTENT_TYPE).body(self.0.to_json_string())
    }
}

impl<T: ToJSON> ApiResponse for Json<T> {
    fn meta() -> MetaResponses {
        MetaResponses {
            responses: vec![MetaResponse {
                description: "Done",
                status: Some(200),
                status_range: None,
                content: vec![MetaMediaType { content_type: Self::CONTENT_TYPE, schema: T::schema_ref() }],
                headers: vec![],
            }],
        }
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }
}

/// The size of a page that nobody asked for, and the largest.
pub(super) const PAGE_SIZE: u64 = 50;
pub(super) const PAGE_SIZE_MAX: u64 = 200;

/// A page's size as asked for.
pub(super) fn page_size(asked: Option<u64>) -> Result<u64, ApiError> {
    match asked {
        None => Ok(PAGE_SIZE),
        Some(size @ 1..=PAGE_SIZE_MAX) => Ok(size),
        Some(_) => Err(ApiError::bad_request(format!("page_size: expected 1 to {PAGE_SIZE_MAX}"))),
    }
}

/// A list, a page of it.
#[derive(Debug, poem_openapi::Object)]
#[oai(skip_serializing_if_is_none)]
pub(super) struct PageOf<T: Type + ToJSON + poem_openapi::types::ParseFromJSON> {
    pub(super) results: Vec<T>,
    pub(super) has_more: bool,
    /// Give it as `cursor` to get the page behind this one.
    pub(super) next_cursor: Option<String>,
}
