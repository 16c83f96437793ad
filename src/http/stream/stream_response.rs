//! Streamed responses in the requested dialect.

use holdpoint_core::id::{RunId, ThreadId};
use holdpoint_stream::{Dialect, Head, NothingToRead};
use poem::http::header::CACHE_CONTROL;
use poem::http::{HeaderValue, StatusCode};
use poem::{Body, IntoResponse, Response};
use poem_openapi::ApiResponse;
use poem_openapi::registry::{
    MetaHeader, MetaMediaType, MetaResponse, MetaResponses, MetaSchema, MetaSchemaRef, Registry,
};
use poem_openapi::types::Type;

/// The `cache-control` of every stream. A proxy that compresses a stream may hold it back up to its end, and does not
/// compress what it must not transform.
pub(in crate::http) const AS_IT_IS: HeaderValue = HeaderValue::from_static("no-store, no-transform");
/// The header with the id of the thread.
const THREAD_ID: &str = "x-thread-id";
/// The header with the id of the run.
const RUN_ID: &str = "x-run-id";
/// The header that names posted messages that the server does not take.
const LEFT_OUT: &str = "x-left-out";
/// Maximum length of that header, in bytes.
const LEFT_OUT_BYTES: usize = 2000;

/// A turn as a stream. Failures after the head of the response are in the stream.
pub(in crate::http) struct ChatStream {
    pub(in crate::http) dialect: &'static Dialect,
    pub(in crate::http) thread_id: ThreadId,
    pub(in crate::http) run_id: RunId,
    /// The posted messages that the server does not take, with the reasons.
    pub(in crate::http) left_out: Vec<String>,
    pub(in crate::http) body: Body,
}

impl IntoResponse for ChatStream {
    fn into_response(self) -> Response {
        let mut response = empty(self.dialect, self.body);
        for (name, id) in [(THREAD_ID, self.thread_id.to_string()), (RUN_ID, self.run_id.to_string())] {
            // Every character of an id is valid in a header.
            if let Ok(id) = HeaderValue::try_from(id) {
                response.headers_mut().insert(name, id);
            }
        }
        if let Some(named) = left_out(&self.left_out) {
            response.headers_mut().insert(LEFT_OUT, named);
        }
        response
    }
}

impl ApiResponse for ChatStream {
    fn meta() -> MetaResponses {
        MetaResponses {
            responses: vec![stream_response(
                "The events of the turn as they happen. Failures after the response has started are in the stream.",
            )],
        }
    }

    fn register(_registry: &mut Registry) {}
}

/// The running turn, if there is one.
pub(in crate::http) struct AttachedStream {
    pub(in crate::http) dialect: &'static Dialect,
    pub(in crate::http) stream: Option<ChatStream>,
}

impl IntoResponse for AttachedStream {
    fn into_response(self) -> Response {
        match (self.stream, self.dialect.nothing_to_read) {
            (Some(stream), _) => stream.into_response(),
            (None, NothingToRead::EmptyStream) => empty(self.dialect, Body::empty()),
            (None, NothingToRead::NoContent) => StatusCode::NO_CONTENT.into_response(),
        }
    }
}

impl ApiResponse for AttachedStream {
    fn meta() -> MetaResponses {
        let nothing = MetaResponse {
            description: "No turn is running, in a dialect whose pages accept a response without content.",
            status: Some(204),
            status_range: None,
            content: Vec::new(),
            headers: Vec::new(),
        };
        let stream = stream_response(
            "The running turn. If no turn is running, an empty stream, in a dialect whose pages fail at other responses.",
        );
        MetaResponses { responses: vec![stream, nothing] }
    }

    fn register(_registry: &mut Registry) {}
}

/// Returns the header for these messages, with `?` in place of characters that a header must not contain.
fn left_out(messages: &[String]) -> Option<HeaderValue> {
    if messages.is_empty() {
        return None;
    }
    let mut named = messages.join("; ").replace(|c| !matches!(c, ' '..='~'), "?");
    named.truncate(LEFT_OUT_BYTES);
    HeaderValue::try_from(named).ok()
}

fn empty(dialect: &Dialect, body: Body) -> Response {
    let head = dialect.head;
    Response::builder()
        .content_type(head.content_type)
        .header(head.protocol, "v1")
        // A buffering proxy would delay the text.
        .header("x-accel-buffering", "no")
        .header(CACHE_CONTROL, AS_IT_IS)
        .body(body)
}

fn stream_response(description: &'static str) -> MetaResponse {
    let header = |name: &str, description: &str| MetaHeader {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        required: false,
        deprecated: false,
        schema: String::schema_ref(),
    };
    let heads = Head::all();
    let content = heads.iter().map(|head| MetaMediaType {
        content_type: head.media_type,
        schema: MetaSchemaRef::Inline(Box::new(MetaSchema {
            description: Some(head.description),
            ty: head.schema_type,
            ..MetaSchema::ANY
        })),
    });
    let mut headers: Vec<_> =
        heads.iter().map(|head| header(head.protocol, "`v1`, in such a stream.")).collect();
    headers.push(header(THREAD_ID, "The thread of the run, where there is one."));
    headers.push(header(RUN_ID, "The run that answers, where there is one."));
    headers.push(header(
        LEFT_OUT,
        "The user messages before the new one that the server had not stored and does not take, with the reasons.",
    ));
    MetaResponse { description, status: Some(200), status_range: None, content: content.collect(), headers }
}
