//! Events as one client reads them, one after the other as they happen.
//!
//! Each piece is written once the one before was taken; so a client that reads slowly is written ahead for by one
//! piece, and what it has not read stays in the rows.

use super::event::write_frame;
use super::rates::StreamSlot;
use crate::feed::Subscription;
use crate::metrics::Now;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream};
use poem::{Body, IntoResponse, Response};
use poem_openapi::registry::{MetaMediaType, MetaResponse, MetaSchema, MetaSchemaRef};
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// The media type of Server-Sent Events.
pub(super) const MEDIA_TYPE: &str = "text/event-stream";
/// A comment, which shows that the stream is alive.
const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// One client's stream.
pub(super) struct EventStream {
    pub(super) subscription: Subscription,
    /// After how long a silence it shows that it is alive.
    pub(super) keep_alive: Option<Duration>,
    /// When it ends: nobody is known by an old token.
    pub(super) until: Option<Instant>,
    /// As long as there is anything of the stream in memory, it counts.
    pub(super) _place: StreamSlot,
    pub(super) _open: Now,
}

impl EventStream {
    async fn next(mut self) -> Option<(Bytes, Self)> {
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
        piece.map(|piece| (piece, self))
    }
}

/// Comes back at this time.
pub(super) async fn end(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

impl IntoResponse for EventStream {
    fn into_response(self) -> Response {
        let pieces = stream::unfold(self, Self::next).map(Ok::<_, io::Error>);
        Response::builder()
            .content_type(MEDIA_TYPE)
            // Proxies that buffer would hold the events back.
            .header("x-accel-buffering", "no")
            .body(Body::from_bytes_stream(pieces))
    }
}

/// The stream as the document has it, beside what else is answered.
pub(super) fn told(description: &'static str, others: Vec<MetaMediaType>) -> MetaResponse {
    let mut content = others;
    content.push(MetaMediaType {
        content_type: MEDIA_TYPE,
        schema: MetaSchemaRef::Inline(Box::new(MetaSchema {
            description: Some(
                "Server-Sent Events: `id` is the event's `seq`, `event` its `type`, `data` the event.",
            ),
            ty: "",
            ..MetaSchema::ANY
        })),
    });
    MetaResponse { description, status: Some(200), status_range: None, content, headers: Vec::new() }
}
