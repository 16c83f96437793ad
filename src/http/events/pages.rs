//! Events of one run or one call, as pages.

use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Operator, Owner},
};
use crate::http::auth::{Caller, Expiry};
use crate::http::body::formats::{Id, Position};
use crate::http::body::page::{Paged, RequestedSize, page_size};
use crate::http::body::payload::Tag;
use crate::http::events::event::EventView;
use crate::http::events::event_stream::{EventStream, MEDIA_TYPE};
use crate::http::events::live_events::{parse_last_event_id, seq};
use crate::http::failure::error::ApiError;
use holdpoint_core::id::{RunId, ToolCallId};
use holdpoint_store::{EventFilter, EventsRead};
use poem::http::header::ACCEPT;
use poem::{IntoResponse, Request, Response};
use poem_openapi::param::{Header, Path, Query};
use poem_openapi::registry::{MetaResponses, Registry};
use poem_openapi::{ApiResponse, OpenApi};

/// A page or a stream of events, as requested. The stream also has a route of its own, so that each operation of
/// the document has one content type.
enum SomeEvents {
    Page(Paged<EventView>),
    Live(Box<EventStream>),
}

impl IntoResponse for SomeEvents {
    fn into_response(self) -> Response {
        match self {
            Self::Page(page) => page.into_response(),
            Self::Live(stream) => stream.into_response(),
        }
    }
}

impl ApiResponse for SomeEvents {
    fn meta() -> MetaResponses {
        Paged::<EventView>::meta()
    }

    fn register(registry: &mut Registry) {
        Paged::<EventView>::register(registry);
    }
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("listRunEvents", &[Owner, Approver, Delegate, Operator]),
    ("listToolCallEvents", &[Owner, Approver, Delegate, Operator]),
];

pub(in crate::http) struct Events(pub(in crate::http) Api);

#[OpenApi(tag = "Tag::Events")]
impl Events {
    /// List the events of a run, oldest first
    ///
    /// Allowed for the thread's user, and for callers with a role that approves a call of the run. If `accept` asks for
    /// `text/event-stream`, the response is the stream of `/runs/{run_id}/events/stream`.
    #[oai(path = "/runs/:run_id/events", method = "get", operation_id = "listRunEvents")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn of_run(
        &self,
        request: &Request,
        caller: Caller,
        expiry: Expiry,
        /// The run, as `x-run-id` of its stream or an event names it.
        run_id: Path<Id>,
        /// The `seq` of the last event that the client received. It counts before `cursor`.
        #[oai(name = "last-event-id")]
        last_event_id: Header<Option<Position>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Position>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<SomeEvents, ApiError> {
        let run: RunId = run_id.0.parse().map_err(|_| ApiError::not_found())?;
        let about = EventFilter { run: Some(run), ..EventFilter::default() };
        let size = self::page_size(page_size.0)?;
        let after = parse_last_event_id(&last_event_id)?.or(seq("cursor", cursor.0.as_deref())?);
        self.some(request, caller, expiry, about, after, size).await
    }

    /// List the events of a tool call, oldest first
    ///
    /// Allowed for the thread's user. For a call that is or was held, also allowed for callers with a role
    /// that approves the tool's calls. If `accept` asks for `text/event-stream`, the response is the stream of
    /// `/tool_calls/{tool_call_id}/events/stream`.
    #[oai(path = "/tool_calls/:tool_call_id/events", method = "get", operation_id = "listToolCallEvents")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn of_call(
        &self,
        request: &Request,
        caller: Caller,
        expiry: Expiry,
        /// The tool call, as its approval or an event names it.
        tool_call_id: Path<Id>,
        /// The `seq` of the last event that the client received. It counts before `cursor`.
        #[oai(name = "last-event-id")]
        last_event_id: Header<Option<Position>>,
        /// The `next_cursor` of the previous page.
        cursor: Query<Option<Position>>,
        /// 1 to 200; 50 if absent.
        page_size: Query<Option<RequestedSize>>,
    ) -> Result<SomeEvents, ApiError> {
        let call: ToolCallId = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        let about = EventFilter { call: Some(call), ..EventFilter::default() };
        let size = self::page_size(page_size.0)?;
        let after = parse_last_event_id(&last_event_id)?.or(seq("cursor", cursor.0.as_deref())?);
        self.some(request, caller, expiry, about, after, size).await
    }
}

impl Events {
    /// Returns the events of one run or one call.
    async fn some(
        &self,
        request: &Request,
        caller: Caller,
        expiry: Expiry,
        about: EventFilter,
        after: Option<i64>,
        size: u64,
    ) -> Result<SomeEvents, ApiError> {
        let page_bytes = self.0.rates.in_flight.page(&caller.0).await?;
        let reader = self.0.reader(&caller.0);
        let read = self.0.feed.read(&about).await?;
        if !read.is_seen(&reader, &about).await? {
            return Err(ApiError::not_found());
        }
        let after = after.unwrap_or(0);
        if wants_stream(request) {
            drop((read, page_bytes));
            let stream = self.0.live_events(&caller, expiry, about, Some(after)).await?;
            return Ok(SomeEvents::Live(Box::new(stream)));
        }
        let page = self.0.page(size);
        let EventsRead { events, up_to } = read.events_page(&reader, &about, after, page).await?;
        let mut results = Paged::new(page_bytes);
        for event in &events {
            if !results.push(event.seq.to_string(), [EventView::of(event)]) {
                return Ok(SomeEvents::Page(results.finish(true)));
            }
        }
        if let Some(looked) = up_to {
            // The last rows may be invisible to the reader. The cursor still moves past them.
            results.push(looked.to_string(), []);
        }
        Ok(SomeEvents::Page(results.finish(up_to.is_some())))
    }
}

/// Whether `accept` names Server-Sent Events explicitly (RFC 9110, 12.5.1).
fn wants_stream(request: &Request) -> bool {
    let accepted = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let media_type = range.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case(MEDIA_TYPE)
    })
}
