//! A turn as one client reads it.
//!
//! It is written a piece at a time, each once the one before was taken; so a client that reads slowly is written
//! ahead for by one piece. Dropping the stream ends the reading, not the turn.

use super::rates::StreamPlace;
use crate::chat::Started;
use crate::chat::live::{Enough, Reader};
use crate::domain::turn::TurnEvent;
use crate::metrics::{Metrics, Now};
use crate::stream::data_v1;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use poem::Body;
use std::io;

/// How streams are written.
#[derive(Debug, Clone)]
pub(crate) struct Streaming {
    pub(crate) metrics: Metrics,
    /// The length of a piece, about.
    pub(crate) piece_bytes: usize,
}

/// One client's stream.
struct TurnStream {
    reader: Reader,
    request_id: String,
    piece_bytes: usize,
    /// As long as there is anything of the stream in memory, it counts.
    _place: StreamPlace,
    _open: Now,
}

impl Streaming {
    /// The turn as it is said.
    pub(super) fn bytes_of(&self, started: &Started, request_id: String, place: StreamPlace) -> Body {
        let reader = started.log.reader();
        let open = self.metrics.stream();
        let stream =
            TurnStream { reader, request_id, piece_bytes: self.piece_bytes, _place: place, _open: open };
        Body::from_bytes_stream(stream::unfold(stream, TurnStream::piece).map(Ok::<_, io::Error>))
    }
}

impl TurnStream {
    async fn piece(mut self) -> Option<(Bytes, Self)> {
        let mut piece = BytesMut::new();
        let write = |event: &TurnEvent| {
            data_v1::encode(event, &self.request_id, &mut piece);
            if piece.len() < self.piece_bytes { Enough::No } else { Enough::Yes }
        };
        self.reader.next(write).await.then(|| (piece.freeze(), self))
    }
}
