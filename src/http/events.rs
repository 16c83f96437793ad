//! Events, as pages and as streams.

use super::Api;
use super::auth::{Caller, Expiry};
use super::error::ApiError;
use super::event::EventView;
use super::event_stream::{EventStream, MEDIA_TYPE, stream_response};
use super::formats::{Id, Position};
use super::page::{PageOf, Paged, RequestedSize, page_size};
use super::payload::{Json, Tag};
use super::thread_ref::ThreadRef;
use crate::domain::id::{RunId, ToolCallId};
use crate::store::{EventFilter, EventReader, EventsRead};
use poem::http::header::ACCEPT;
use poem::{IntoResponse, Request, Response};
use poem_openapi::param::{Header, Path, Query};
use poem_openapi::payload::Payload;
use poem_openapi::registry::{MetaMediaType, MetaResponses, Registry};
use poem_openapi::types::Type;
use poem_openapi::{ApiResponse, OpenApi};

type EventPage = PageOf<EventView>;

/// A stream of events.
struct LiveEvents(EventStream);

impl IntoResponse for LiveEvents {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl ApiResponse for LiveEvents {
    fn meta() -> MetaResponses {
        MetaResponses { responses: vec![stream_response("Events as they happen.", Vec::new())] }
    }

    fn register(_registry: &mut Registry) {}
}

/// A page or a stream of events, as requested.
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
        let page =
            MetaMediaType { content_type: Json::<EventPage>::CONTENT_TYPE, schema: EventPage::schema_ref() };
        let description = "A page of events. If `accept` asks for `text/event-stream`: past events, then new events as they happen.";
        MetaResponses { responses: vec![stream_response(description, vec![page])] }
    }

    fn register(registry: &mut Registry) {
        EventPage::register(registry);
    }
}

/// The events that a request selects.
struct EventQuery {
    reader: EventReader,
    about: EventFilter,
    after: Option<i64>,
}

pub(super) struct Events(pub(super) Api);

#[OpenApi(tag = "Tag::Events")]
impl Events {
    /// Stream events
    ///
    /// The stream has the events of the caller's threads. A caller with a role that approves a tool's calls
    /// also receives the events of held calls of that tool, and an operator receives all events of the
    /// tenant. With `Last-Event-ID` or `after`, the stream resumes after that event without gaps; otherwise
    /// it begins with the next event. The stream ends when the caller's token expires.
    #[oai(path = "/events", method = "get", operation_id = "streamEvents")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn stream(
        &self,
        caller: Caller,
        expiry: Expiry,
        /// The `seq` of the last event that the client received.
        #[oai(name = "last-event-id")]
        last_event_id: Header<Option<Position>>,
        /// The same, for clients that cannot send the header.
        after: Query<Option<Position>>,
        /// Only events of this session: its id, or the caller's own name for its root thread.
        session_id: Query<Option<ThreadRef>>,
        /// Only events of this thread: its id, or the caller's own name for it.
        thread_id: Query<Option<ThreadRef>>,
        /// A ticket of `POST /tickets`, in place of a token, for browsers that cannot send headers here.
        #[oai(name = "ticket")]
        _ticket: Query<Option<String>>,
    ) -> Result<LiveEvents, ApiError> {
        let after = parse_last_event_id(&last_event_id)?.or(seq("after", after.0.as_deref())?);
        let about = EventFilter {
            session: self.0.selected_thread(&caller, session_id.0.as_ref()).await?,
            thread: self.0.selected_thread(&caller, thread_id.0.as_ref()).await?,
            ..EventFilter::default()
        };
        let reader = self.0.reader(&caller.0);
        Ok(LiveEvents(self.live(&caller, expiry, EventQuery { reader, about, after }).await?))
    }

    /// List or stream the events of a run, oldest first
    #[oai(path = "/runs/:run_id/events", method = "get", operation_id = "listRunEvents")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn of_run(
        &self,
        request: &Request,
        caller: Caller,
        expiry: Expiry,
        run_id: Path<Id>,
        /// The `seq` of the last event that the client received, for a stream.
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

    /// List or stream the events of a tool call, oldest first
    ///
    /// Allowed for the thread's user. For a call that is or was held, also allowed for callers with a role
    /// that approves the tool's calls.
    #[oai(path = "/tool_calls/:tool_call_id/events", method = "get", operation_id = "listToolCallEvents")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn of_call(
        &self,
        request: &Request,
        caller: Caller,
        expiry: Expiry,
        tool_call_id: Path<Id>,
        /// The `seq` of the last event that the client received, for a stream.
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
        let reader = self.0.reader(&caller.0);
        let read = self.0.feed.read(&about).await?;
        if !read.is_seen(&reader, &about).await? {
            return Err(ApiError::not_found());
        }
        let after = after.unwrap_or(0);
        if wants_stream(request) {
            drop(read);
            let wanted = EventQuery { reader, about, after: Some(after) };
            return Ok(SomeEvents::Live(Box::new(self.live(&caller, expiry, wanted).await?)));
        }
        let page = self.0.page(size);
        let EventsRead { events, up_to } = read.events_page(&reader, &about, after, page).await?;
        let mut results = Paged::new(self.0.page_bytes);
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

    async fn live(
        &self,
        caller: &Caller,
        expiry: Expiry,
        wanted: EventQuery,
    ) -> Result<EventStream, ApiError> {
        let EventQuery { reader, about, after } = wanted;
        let place = self.0.rates.stream(&caller.0)?;
        let subscription = self.0.feed.subscribe(reader, about, after).await?;
        Ok(EventStream {
            subscription,
            keep_alive: self.0.streaming.silence(),
            until: expiry.instant(&*self.0.clock),
            _place: place,
            _open: self.0.metrics.stream(),
        })
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

/// Parses `Last-Event-ID`, which a browser sends when it reconnects. An empty value counts as absent.
fn parse_last_event_id(header: &Header<Option<Position>>) -> Result<Option<i64>, ApiError> {
    seq("Last-Event-ID", header.0.as_deref().filter(|id| !id.is_empty()))
}

fn seq(name: &str, text: Option<&str>) -> Result<Option<i64>, ApiError> {
    let expected = || ApiError::bad_request(format!("{name}: expected the seq of an event"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    text.map(|text| text.parse().ok().filter(|_| digits(text)).ok_or_else(expected)).transpose()
}
