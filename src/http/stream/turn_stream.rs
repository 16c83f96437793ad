//! The stream of a turn to one client.
//!
//! A chunk is written after the client took the previous one. A slow client therefore has at most one chunk
//! in memory. Dropping the stream ends the reading, not the turn.
//!
//! # One stream
//!
//! 1. A turn emits `TurnEvent`s, the same for all dialects, into its `TurnLog`. The log joins consecutive deltas, so a
//!    late reader gets the same text in larger pieces.
//! 2. [`Streaming::answer`] gives each reader a position in the log and an `Encoder`: first the backfill of that
//!    reader, then the log. The `Audience` has the cards of that reader: the tool's part of a held call, and what the
//!    reader may do. The encoder keeps a record of what it has written, so that each outcome is written once.
//! 3. `agent::draft` decides when the text of a step is stored (`message_steps.parts`, status `streaming`).
//!    `DraftWriter` stores the drafts of all turns of the process, many in one transaction. So the text survives its
//!    process, and other processes can show it.
//! 4. `Chat::attach` serves a GET. A `Tail` reads a turn of another process from the rows every 500 ms, and emits the
//!    differences into one log for all readers of this process.
//! 5. The reloads of the crate `stream` fold rows into messages, as the client folds the stream. Its fuzz targets
//!    compare both with the real clients.
//! 6. The accept loop (`serve`) writes an answer in pieces and drops an answer that the client does not take. It closes
//!    connections that leave an answer or stay idle. hyper keeps the data that it was given until the client has room,
//!    and polls the body of the answer only then: only the end of the connection frees that memory.

use crate::chat::StartedTurn;
use crate::chat::turn_log::{Enough, Reader};
use crate::config::UiDialect;
use crate::http::failure::error::ApiError;
use crate::http::middleware::rates::StreamSlot;
use crate::http::stream::dialect_hint::DialectHint;
use crate::http::stream::stream_response::ChatStream;
use bytes::{Bytes, BytesMut};
use futures::stream;
use holdpoint_core::id::ToolCallId;
use holdpoint_core::turn::TurnEvent;
use holdpoint_metrics::{GaugeUnit, Metrics};
use holdpoint_stream::{Audience, Cards, Dialect, Encoder, PageDecision};
use poem::Body;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Approximate length of a chunk of a backfill, in bytes.
const BACKFILL_BYTES: usize = 128 << 10;

/// The settings of streams.
#[derive(Debug, Clone)]
pub(crate) struct Streaming {
    pub(crate) metrics: Metrics,
    /// Approximate length of a chunk, in bytes.
    pub(crate) piece_bytes: usize,
    /// The interval without output after which a stream sends a keep-alive; zero disables keep-alives.
    pub(crate) keep_alive: Duration,
    /// The dialect of pages of the UI message stream that do not select a version.
    pub(crate) default_ui_dialect: UiDialect,
    pub(crate) hint: DialectHint,
}

/// The receiver of a stream.
pub(in crate::http) struct Listener {
    pub(in crate::http) dialect: &'static Dialect,
    /// Whether neither the page nor the operator selected the dialect, which the page may be unable to read.
    pub(in crate::http) is_guess: bool,
    pub(in crate::http) request_id: String,
    pub(in crate::http) slot: StreamSlot,
    /// The calls that the page shows as approved in this request.
    pub(in crate::http) approved: HashSet<ToolCallId>,
    /// Whether the page approves the calls that it answers in this request.
    pub(in crate::http) answers: HashMap<ToolCallId, bool>,
    pub(in crate::http) cards: Arc<dyn Cards>,
}

/// One client's stream.
struct TurnStream {
    pieces: Pieces,
    /// The slot is released when the stream is dropped.
    slot: StreamSlot,
    _open: GaugeUnit,
}

/// A turn, encoded in a dialect, chunk by chunk.
struct Pieces {
    encoder: Box<dyn Encoder>,
    /// The backfill before the events of the turn, encoded.
    before: std::vec::IntoIter<Bytes>,
    reader: Reader,
    piece_bytes: usize,
    keep_alive: Option<Duration>,
    hint: Option<DialectHint>,
    /// Encoded output that is not handed over yet.
    piece: BytesMut,
    over: bool,
}

impl Streaming {
    /// Returns the interval of the keep-alives, if they are enabled.
    pub(in crate::http) fn silence(&self) -> Option<Duration> {
        Some(self.keep_alive).filter(|time| !time.is_zero())
    }

    /// Returns the stream of a started turn. Fails if the user's clients have yet to read too many bytes for the
    /// backfill.
    pub(in crate::http) fn answer(
        &self,
        started: StartedTurn,
        listener: Listener,
    ) -> Result<ChatStream, ApiError> {
        let Listener { dialect, is_guess, request_id, slot, approved, answers, cards } = listener;
        let StartedTurn { thread_id, run_id, message_id, backfill: before, log, accepted, left_out } =
            started;
        let answer = |(call, approved)| (call, PageDecision { approved, accepted: accepted.contains(&call) });
        let answers = answers.into_iter().map(answer).collect();
        let mut encoder = dialect.encoder(Audience { message_id, request_id, approved, answers, cards });
        let hint = is_guess.then(|| self.hint.clone());
        let mut piece = BytesMut::new();
        encoder.begin(&mut piece);
        let mut encoded = Vec::new();
        for event in before {
            hint.iter().for_each(|hint| hint.see(&event));
            encoder.event(&event, &mut piece);
            if piece.len() >= BACKFILL_BYTES {
                encoded.push(piece.split().freeze());
            }
        }
        let encoded = slot.hold_all(encoded).map_err(ApiError::too_many_answers)?;
        let pieces = Pieces {
            encoder,
            before: encoded.into_iter(),
            reader: log.reader().in_pieces(self.piece_bytes),
            piece_bytes: self.piece_bytes,
            keep_alive: self.silence(),
            hint,
            piece,
            over: false,
        };
        let stream = TurnStream { pieces, slot, _open: self.metrics.stream() };
        let body = Body::from_bytes_stream(stream::unfold(stream, TurnStream::next));
        Ok(ChatStream { dialect, thread_id, run_id, left_out, body })
    }
}

impl TurnStream {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if let Some(counted) = self.pieces.before.next() {
            return Some((Ok(counted), self));
        }
        let piece = self.pieces.next().await?;
        // The page attaches again.
        Some((self.slot.hold(piece).map_err(io::Error::other), self))
    }
}

impl Pieces {
    /// Returns the next non-empty chunk, or `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        // An event without output in the dialect does not end the stream.
        while self.piece.is_empty() && !self.over {
            self.read().await;
        }
        (!self.piece.is_empty()).then(|| self.piece.split().freeze())
    }

    /// Writes the next events, a keep-alive, or the end of the stream.
    async fn read(&mut self) {
        let Self { encoder, reader, piece_bytes, keep_alive, hint, piece, .. } = self;
        let write = |event: &TurnEvent<'_>| {
            hint.iter().for_each(|hint| hint.see(event));
            encoder.event(event, piece);
            if piece.len() < *piece_bytes { Enough::No } else { Enough::Yes }
        };
        let next = reader.next(write);
        let continues = match keep_alive {
            None => next.await,
            Some(time) => match timeout(*time, next).await {
                Ok(continues) => continues,
                Err(_silence) => {
                    self.encoder.keep_alive(&mut self.piece);
                    return;
                }
            },
        };
        if !continues {
            self.over = true;
            self.encoder.end(&mut self.piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::turn_log::TurnLog;
    use futures::FutureExt;
    use holdpoint_core::id::MessageId;
    use uuid::Uuid;

    fn pieces(dialect: &Dialect, log: &TurnLog) -> Pieces {
        Pieces {
            encoder: dialect.encoder(Audience::new(MessageId::new(Uuid::from_u128(1)), "")),
            before: Vec::new().into_iter(),
            reader: log.reader(),
            piece_bytes: 100,
            keep_alive: None,
            hint: None,
            piece: BytesMut::new(),
            over: false,
        }
    }

    #[test]
    fn a_stream_continues_after_an_event_without_output_in_its_dialect() {
        let log = TurnLog::default();
        let mut pieces = pieces(Dialect::DATA_V1, &log);
        log.emit(TurnEvent::PartEnded);
        assert_eq!(pieces.next().now_or_never(), None, "the stream has not ended and has no output yet");
        log.emit(TurnEvent::Text("a".into()));
        assert_eq!(pieces.next().now_or_never(), Some(Some(Bytes::from("0:\"a\"\n"))));
        log.emit(TurnEvent::PartEnded);
        log.close();
        assert_eq!(pieces.next().now_or_never(), Some(None));
    }
}
