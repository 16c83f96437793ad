//! The event stream of one client.
//!
//! A chunk is written after the client took the previous one. A slow client therefore has at most one chunk
//! in memory, and the unread events stay in the database.

use crate::feed::Subscription;
use crate::http::events::event::write_frame;
use crate::http::middleware::rates::StreamSlot;
use crate::http::stream::stream_response::AS_IT_IS;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use holdpoint_metrics::GaugeUnit;
use poem::http::header::CACHE_CONTROL;
use poem::{Body, IntoResponse, Response};
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaSchema, MetaSchemaRef};
use std::future::ready;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// The media type of Server-Sent Events.
pub(in crate::http) const MEDIA_TYPE: &str = "text/event-stream";
/// The first comment. A proxy may hold the head of a response back until the first byte of the body.
const OPEN: Bytes = Bytes::from_static(b": open\n\n");
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// One client's stream.
pub(in crate::http) struct EventStream {
    pub(in crate::http) subscription: Subscription,
    /// The interval without output after which the stream sends a keep-alive.
    pub(in crate::http) keep_alive: Option<Duration>,
    /// When the stream ends: the expiry of the caller's token.
    pub(in crate::http) until: Option<Instant>,
    /// The slot is released when the stream is dropped.
    pub(in crate::http) slot: StreamSlot,
    pub(in crate::http) _open: GaugeUnit,
}

impl EventStream {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        let silence = self.keep_alive;
        let silence = async {
            match silence {
                Some(time) => sleep(time).await,
                None => std::future::pending().await,
            }
        };
        let piece = tokio::select! {
            biased;
            () = end(self.until) => None,
            events = self.subscription.next() => events.map(|events| {
                let mut piece = BytesMut::new();
                events.iter().for_each(|event| write_frame(event, &mut piece));
                piece.freeze()
            }),
            () = silence => Some(KEEP_ALIVE),
        };
        // The client reads from the last event that it has.
        piece.map(|piece| (self.slot.hold(piece).map_err(io::Error::other), self))
    }
}

/// Completes at this time, or never for `None`.
pub(in crate::http) async fn end(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        let pieces = stream::once(ready(Ok(OPEN))).chain(stream::unfold(self, Self::next));
        Response::builder()
            .content_type(MEDIA_TYPE)
            // A buffering proxy would delay the events.
            .header("x-accel-buffering", "no")
            .header(CACHE_CONTROL, AS_IT_IS)
            .body(Body::from_bytes_stream(pieces))
    }
}

pub(in crate::http) fn stream_response(description: &'static str) -> MetaResponse {
    let content = vec![MetaMediaType {
        content_type: MEDIA_TYPE,
        schema: MetaSchemaRef::Inline(Box::new(MetaSchema {
            description: Some(
                "Server-Sent Events: `id` is the event's `seq`, `event` its `type`, `data` the event.",
            ),
            ..MetaSchema::new("string")
        })),
    }];
    MetaResponse { description, status: Some(200), status_range: None, content, headers: Vec::new() }
}
