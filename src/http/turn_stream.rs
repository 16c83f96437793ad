//! A turn as one client reads it.
//!
//! It is written a piece at a time, each once the one before was taken; so a client that reads slowly is written
//! ahead for by one piece. One that takes nothing for too long loses its place in the turn's log, which it would
//! otherwise keep in memory for as long as it likes: with HTTP/2 it can stay, and leave this one stream unread. Its
//! answer breaks off; the turn goes on.

use super::rates::StreamPlace;
use crate::agent::Tasks;
use crate::chat::Started;
use crate::chat::live::{Enough, Reader};
use crate::domain::turn::TurnEvent;
use crate::metrics::{Metrics, Now};
use crate::stream::data_v1;
use bytes::{Bytes, BytesMut};
use futures::stream;
use poem::Body;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// How streams are written.
#[derive(Debug, Clone)]
pub(crate) struct Streaming {
    pub(crate) tasks: Tasks,
    pub(crate) metrics: Metrics,
    /// The length of a piece, about.
    pub(crate) piece_bytes: usize,
    /// How long a client may take for one.
    pub(crate) taking: Duration,
}

/// A reader, while what it read is on its way.
#[derive(Debug)]
struct Resting(Mutex<Option<(Reader, Instant)>>);

impl Resting {
    fn lay_down(&self, reader: Reader) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((reader, Instant::now()));
    }

    /// The reader, to read on; `None` if it rested for too long.
    fn take_up(&self) -> Option<Reader> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map(|(reader, _)| reader)
    }

    /// Lets go of a reader that rests since before this; whether it did.
    fn let_go(&self, before: Instant) -> bool {
        let mut resting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        resting.take_if(|(_, since)| *since <= before).is_some()
    }
}

/// One client's stream. Dropping it ends the reading, not the turn.
struct TurnStream {
    resting: Arc<Resting>,
    request_id: String,
    piece_bytes: usize,
    /// As long as there is anything of the stream in memory, it counts.
    _place: StreamPlace,
    _open: Now,
    _gone: oneshot::Sender<()>,
}

impl Streaming {
    /// The turn as it is said.
    pub(super) fn bytes_of(&self, started: &Started, request_id: String, place: StreamPlace) -> Body {
        let resting = Arc::new(Resting(Mutex::new(Some((started.log.reader(), Instant::now())))));
        let (here, gone) = oneshot::channel();
        self.watch(resting.clone(), gone);
        let piece_bytes = self.piece_bytes;
        let open = self.metrics.stream();
        let stream = TurnStream { resting, request_id, piece_bytes, _place: place, _open: open, _gone: here };
        Body::from_bytes_stream(stream::try_unfold(stream, TurnStream::piece))
    }

    /// Sees to it that a client takes what there is for it, or lets go.
    fn watch(&self, resting: Arc<Resting>, gone: oneshot::Receiver<()>) {
        let (tasks, taking) = (self.tasks.clone(), self.taking);
        let watching = async move {
            loop {
                let looked = Instant::now();
                sleep(taking).await;
                if resting.let_go(looked) {
                    tracing::debug!("a client does not read its stream; it is let go");
                    break;
                }
            }
        };
        self.tasks.spawn(async move {
            tokio::select! {
                () = watching => {}
                _gone = gone => {}
                () = tasks.stopping() => {}
            }
        });
    }
}

impl TurnStream {
    async fn piece(self) -> io::Result<Option<(Bytes, Self)>> {
        let Some(mut reader) = self.resting.take_up() else {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        };
        let mut piece = BytesMut::new();
        let write = |event: &TurnEvent| {
            data_v1::encode(event, &self.request_id, &mut piece);
            if piece.len() < self.piece_bytes { Enough::No } else { Enough::Yes }
        };
        if !reader.next(write).await {
            return Ok(None);
        }
        self.resting.lay_down(reader);
        Ok(Some((piece.freeze(), self)))
    }
}
