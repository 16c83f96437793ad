//! Streams of events, and the routes of the streams.

use crate::http::Api;
use crate::http::access::{
    Access,
    CallerKind::{Approver, Delegate, Operator, Owner, User},
};
use crate::http::auth::{Caller, Expiry};
use crate::http::body::formats::{Id, Position};
use crate::http::body::payload::Tag;
use crate::http::body::thread_ref::ThreadRef;
use crate::http::events::event_stream::{EventStream, stream_response};
use crate::http::failure::error::ApiError;
use holdpoint_store::EventFilter;
use poem::{IntoResponse, Response};
use poem_openapi::param::{Header, Path, Query};
use poem_openapi::registry::{MetaResponses, Registry};
use poem_openapi::{ApiResponse, OpenApi};

/// A stream of events.
struct LiveEvents(EventStream);

impl IntoResponse for LiveEvents {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

impl ApiResponse for LiveEvents {
    fn meta() -> MetaResponses {
        MetaResponses { responses: vec![stream_response("Events as they happen.")] }
    }

    fn register(_registry: &mut Registry) {}
}

impl Api {
    /// Returns a stream of the events that the caller may see, from the event after `after` or from now on.
    pub(in crate::http) async fn live_events(
        &self,
        caller: &Caller,
        expiry: Expiry,
        about: EventFilter,
        after: Option<i64>,
    ) -> Result<EventStream, ApiError> {
        let slot = self.rates.stream(&caller.0)?;
        let subscription = self.feed.subscribe(self.reader(&caller.0), about, after).await?;
        Ok(EventStream {
            subscription,
            keep_alive: self.streaming.silence(),
            until: expiry.instant(&*self.clock),
            slot,
            _open: self.metrics.stream(),
        })
    }
}

/// The parameters of a request for the events of all threads, not yet validated.
struct EventQuery {
    last_event_id: Header<Option<Position>>,
    after: Option<Position>,
    session_id: Option<ThreadRef>,
    thread_id: Option<ThreadRef>,
}

/// Who may call the operations of this file.
pub(in crate::http) const ACCESS: Access = &[
    ("streamEvents", &[User]),
    ("streamEventsAlias", &[User]),
    ("streamRunEvents", &[Owner, Approver, Delegate, Operator]),
    ("streamToolCallEvents", &[Owner, Approver, Delegate, Operator]),
];

pub(in crate::http) struct EventStreams(pub(in crate::http) Api);

#[OpenApi]
impl EventStreams {
    /// Stream events
    ///
    /// The stream has the events of the caller's threads. A caller with a role that approves a tool's calls
    /// also receives the events of held calls of that tool, and an operator receives all events of the
    /// tenant. Events of a call that is delegated or escalated to the caller follow from then on. With `Last-Event-ID` or `after`, the stream resumes after that event without gaps; otherwise
    /// it begins with the next event. The stream ends when the caller's token expires.
    #[oai(path = "/events/stream", method = "get", operation_id = "streamEvents", tag = "Tag::Events")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn all(
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
        let query =
            EventQuery { last_event_id, after: after.0, session_id: session_id.0, thread_id: thread_id.0 };
        self.of_all(caller, expiry, query).await
    }

    /// Stream events, under the shorter path
    ///
    /// The stream of `/events/stream`.
    #[oai(path = "/events", method = "get", operation_id = "streamEventsAlias", tag = "Tag::Streams")]
    #[expect(clippy::too_many_arguments, reason = "each is a parameter of the route")]
    async fn all_alias(
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
        let query =
            EventQuery { last_event_id, after: after.0, session_id: session_id.0, thread_id: thread_id.0 };
        self.of_all(caller, expiry, query).await
    }

    /// Stream the events of a run
    ///
    /// The stream begins with the first event of the run, or after `Last-Event-ID`; new events follow as they
    /// happen. Allowed for the callers that may list the events.
    #[oai(
        path = "/runs/:run_id/events/stream",
        method = "get",
        operation_id = "streamRunEvents",
        tag = "Tag::Events"
    )]
    async fn of_run(
        &self,
        caller: Caller,
        expiry: Expiry,
        /// The run, as `x-run-id` of its stream or an event names it.
        run_id: Path<Id>,
        /// The `seq` of the last event that the client received.
        #[oai(name = "last-event-id")]
        last_event_id: Header<Option<Position>>,
    ) -> Result<LiveEvents, ApiError> {
        let run = run_id.0.parse().map_err(|_| ApiError::not_found())?;
        self.of_one(caller, expiry, EventFilter { run: Some(run), ..EventFilter::default() }, last_event_id)
            .await
    }

    /// Stream the events of a tool call
    ///
    /// The stream begins with the first event of the call, or after `Last-Event-ID`; new events follow as they
    /// happen. Allowed for the callers that may list the events.
    #[oai(
        path = "/tool_calls/:tool_call_id/events/stream",
        method = "get",
        operation_id = "streamToolCallEvents",
        tag = "Tag::Events"
    )]
    async fn of_call(
        &self,
        caller: Caller,
        expiry: Expiry,
        /// The tool call, as its approval or an event names it.
        tool_call_id: Path<Id>,
        /// The `seq` of the last event that the client received.
        #[oai(name = "last-event-id")]
        last_event_id: Header<Option<Position>>,
    ) -> Result<LiveEvents, ApiError> {
        let call = tool_call_id.0.parse().map_err(|_| ApiError::not_found())?;
        self.of_one(caller, expiry, EventFilter { call: Some(call), ..EventFilter::default() }, last_event_id)
            .await
    }
}

impl EventStreams {
    async fn of_all(
        &self,
        caller: Caller,
        expiry: Expiry,
        query: EventQuery,
    ) -> Result<LiveEvents, ApiError> {
        let after = parse_last_event_id(&query.last_event_id)?.or(seq("after", query.after.as_deref())?);
        let about = EventFilter {
            session: self.0.selected_thread(&caller, query.session_id.as_ref()).await?,
            thread: self.0.selected_thread(&caller, query.thread_id.as_ref()).await?,
            ..EventFilter::default()
        };
        Ok(LiveEvents(self.0.live_events(&caller, expiry, about, after).await?))
    }

    /// Returns the stream of one run or one call.
    async fn of_one(
        &self,
        caller: Caller,
        expiry: Expiry,
        about: EventFilter,
        last_event_id: Header<Option<Position>>,
    ) -> Result<LiveEvents, ApiError> {
        let after = parse_last_event_id(&last_event_id)?.unwrap_or(0);
        if !self.0.feed.read(&about).await?.is_seen(&self.0.reader(&caller.0), &about).await? {
            return Err(ApiError::not_found());
        }
        Ok(LiveEvents(self.0.live_events(&caller, expiry, about, Some(after)).await?))
    }
}

/// Parses `Last-Event-ID`, which a browser sends when it reconnects. An empty value counts as absent.
pub(in crate::http) fn parse_last_event_id(
    header: &Header<Option<Position>>,
) -> Result<Option<i64>, ApiError> {
    seq("Last-Event-ID", header.0.as_deref())
}

/// Parses the `seq` of an event.
pub(in crate::http) fn seq(name: &str, text: Option<&str>) -> Result<Option<i64>, ApiError> {
    let expected = || ApiError::bad_request(format!("{name}: expected the seq of an event"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    text.map(|text| text.parse().ok().filter(|_| digits(text)).ok_or_else(expected)).transpose()
}
