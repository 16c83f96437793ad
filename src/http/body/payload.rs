//! Payloads of responses that several resources share.

use poem::{IntoResponse, Response};
use poem_openapi::payload::Payload;
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaResponses, MetaSchemaRef, Registry};
use poem_openapi::types::ToJSON;
use poem_openapi::{ApiResponse, Tags};

/// The tags of the OpenAPI document. [`Tag::Streams`] also says what the document for generators leaves out.
#[derive(Tags)]
pub(in crate::http) enum Tag {
    /// Turns of a thread, and decisions about held calls.
    Chat,
    /// Conversations.
    Threads,
    /// Runs. A run lasts from a user message to the final response.
    Runs,
    /// Tool calls and their decisions and results.
    ToolCalls,
    /// Programs that execute the calls of worker tools.
    Workers,
    /// Calls that are or were held for an approval.
    Approvals,
    /// The tools that models may call.
    Tools,
    /// Events, as pages and as streams.
    Events,
    /// The caller, as the server authenticated them.
    Auth,
    /// Addresses that get events.
    Webhooks,
    /// Streams that pages of the AI SDK and browsers read. Their bytes have no JSON Schema, so the document for
    /// generators leaves these operations out.
    Streams,
}

/// The content type of every response that is not a stream.
pub(in crate::http) const JSON: &str = "application/json";

/// A JSON payload, documented without parameters of the content type, because some generators accept none. As
/// a whole response it has status 200.
#[derive(Debug)]
pub(in crate::http) struct Json<T>(pub(in crate::http) T);

impl<T: ToJSON> Payload for Json<T> {
    const CONTENT_TYPE: &'static str = JSON;

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
