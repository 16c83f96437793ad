//! A turn as one client reads it.
//!
//! It is written a piece at a time, each once the one before was taken; so a client that reads slowly is written
//! ahead for by one piece. Dropping the stream ends the reading, not the turn.

use super::rates::StreamSlot;
use super::stream_answer::ChatStream;
use crate::chat::Started;
use crate::chat::turn_log::{Enough, Reader};
use crate::config::UiDialect;
use crate::domain::id::ToolCallId;
use crate::domain::turn::TurnEvent;
use crate::metrics::{Metrics, Now};
use crate::stream::Dialect;
use crate::stream::{Audience, Encoder, encoder};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream;
use poem::Body;
use std::collections::HashSet;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// How streams are written.
#[derive(Debug, Clone)]
pub(crate) struct Streaming {
    pub(crate) metrics: Metrics,
    /// The length of a piece, about.
    pub(crate) piece_bytes: usize,
    /// After how long a silence a stream shows that it is alive; zero is never.
    pub(crate) keep_alive: Duration,
    /// What pages of the UI message stream are told that do not say which they are.
    pub(crate) default_ui_dialect: UiDialect,
}

/// For whom a turn is streamed.
pub(super) struct Listener {
    pub(super) dialect: Dialect,
    pub(super) request_id: String,
    pub(super) place: StreamSlot,
    /// The calls to which the page says yes in this request.
    pub(super) approved: HashSet<ToolCallId>,
}

/// One client's stream.
struct TurnStream {
    pieces: Pieces,
    /// As long as there is anything of the stream in memory, it counts.
    _place: StreamSlot,
    _open: Now,
}

/// A turn in the words of a dialect, a piece at a time.
struct Pieces {
    encoder: Box<dyn Encoder>,
    /// What is told before the turn.
    before: std::vec::IntoIter<TurnEvent<'static>>,
    reader: Reader,
    piece_bytes: usize,
    keep_alive: Option<Duration>,
    /// What is written and not given yet.
    piece: BytesMut,
    over: bool,
}

impl Streaming {
    /// The silence after which a stream shows that it is alive, if it ever does.
    pub(super) fn silence(&self) -> Option<Duration> {
        Some(self.keep_alive).filter(|time| !time.is_zero())
    }

    /// The turn as it is said.
    pub(super) fn answer(&self, started: Started, listener: Listener) -> ChatStream {
        let Listener { dialect, request_id, place, approved } = listener;
        let Started { run_id, message_id, backfill: before, log } = started;
        let mut encoder = encoder(dialect, Audience { message_id, request_id, approved });
        let mut piece = BytesMut::new();
        encoder.begin(&mut piece);
        let pieces = Pieces {
            encoder,
            before: before.into_iter(),
            reader: log.reader().in_pieces(self.piece_bytes),
            piece_bytes: self.piece_bytes,
            keep_alive: self.silence(),
            piece,
            over: false,
        };
        let stream = TurnStream { pieces, _place: place, _open: self.metrics.stream() };
        let body = Body::from_bytes_stream(stream::unfold(stream, TurnStream::next).map(Ok::<_, io::Error>));
        ChatStream { dialect, run_id, body }
    }
}

impl TurnStream {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let piece = self.pieces.next().await?;
        Some((piece, self))
    }
}

impl Pieces {
    /// The next that has anything in it; nothing at the end.
    async fn next(&mut self) -> Option<Bytes> {
        // What the dialect has no word for is no end.
        while self.piece.is_empty() && !self.over {
            self.read().await;
        }
        (!self.piece.is_empty()).then(|| self.piece.split().freeze())
    }

    /// Writes what is said next, or that the stream is alive, or its end.
    async fn read(&mut self) {
        let Self { encoder, before, reader, piece_bytes, keep_alive, piece, .. } = self;
        for event in before.by_ref() {
            encoder.event(&event, piece);
            if piece.len() >= *piece_bytes {
                break;
            }
        }
        if !piece.is_empty() {
            return;
        }
        let write = |event: &TurnEvent<'_>| {
            encoder.event(event, piece);
            if piece.len() < *piece_bytes { Enough::No } else { Enough::Yes }
        };
        let next = reader.next(write);
        let goes_on = match keep_alive {
            None => next.await,
            Some(time) => match timeout(*time, next).await {
                Ok(goes_on) => goes_on,
                Err(_silence) => {
                    self.encoder.keep_alive(&mut self.piece);
                    return;
                }
            },
        };
        if !goes_on {
            self.over = true;
            self.encoder.end(&mut self.piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::turn_log::TurnLog;
    use crate::domain::id::MessageId;
    use futures::FutureExt;
    use uuid::Uuid;

    fn pieces(dialect: Dialect, log: &TurnLog) -> Pieces {
        let (message_id, request_id) = (MessageId::new(Uuid::from_u128(1)), String::new());
        Pieces {
            encoder: encoder(dialect, Audience { message_id, request_id, approved: HashSet::new() }),
            before: Vec::new().into_iter(),
            reader: log.reader(),
            piece_bytes: 100,
            keep_alive: None,
            piece: BytesMut::new(),
            over: false,
        }
    }

    #[test]
    fn a_stream_goes_on_behind_what_its_dialect_has_no_word_for() {
        let log = TurnLog::default();
        let mut pieces = pieces(Dialect::DataV1, &log);
        log.emit(TurnEvent::PartEnded);
        assert_eq!(pieces.next().now_or_never(), None, "it has not ended, and there is nothing to say yet");
        log.emit(TurnEvent::Text("a".into()));
        assert_eq!(pieces.next().now_or_never(), Some(Some(Bytes::from("0:\"a\"\n"))));
        log.emit(TurnEvent::PartEnded);
        log.close();
        assert_eq!(pieces.next().now_or_never(), Some(None));
    }
}
