//! Answers on their way: each is given a piece at a time, and lost to a client that does not take what there is.
//!
//! A client that reads slowly has a piece in memory; one that takes nothing for too long loses the rest, which it
//! would otherwise keep there for as long as it likes: with HTTP/2 it can stay, and leave single answers unread. What
//! is begun goes on without it. Where there is nothing to take, it may wait as long as it likes.

use super::activity::Open;
use crate::agent::Tasks;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use poem::Response;
use poem::http::header::CONTENT_LENGTH;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

/// The most that is given at once: a client has the whole deadline for it, on a slow line too.
const PIECE_BYTES: usize = 64 << 10;
/// Of what is longer, the last byte is given alone. hyper gives as soon as there is room for a single byte, and after
/// the end there is nothing to see any more of what it keeps; so the end waits until there is room for the rest.
const WHOLE_BYTES: usize = 1 << 10;

/// What is left of an answer.
#[derive(Debug)]
struct Remaining<B> {
    body: B,
    piece: Bytes,
    /// Since when there is something for the client; `None` while there is nothing.
    since: Option<Instant>,
    open: Option<Open>,
}

impl<B> Remaining<B> {
    fn next_piece(&mut self) -> Bytes {
        let length = self.piece.len();
        let now = if length > WHOLE_BYTES { PIECE_BYTES.min(length - 1) } else { length };
        self.since = Some(Instant::now());
        self.piece.split_to(now)
    }
}

/// The body of an answer as the server takes it.
#[derive(Debug)]
struct PacedBody<B> {
    left: Arc<Mutex<Option<Remaining<B>>>>,
    ended: bool,
    _gone: oneshot::Sender<()>,
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        let mut lock = this.left.lock();
        let Some(left) = lock.as_mut() else {
            let late = io::Error::from(io::ErrorKind::TimedOut);
            return Poll::Ready((!this.ended).then_some(Err(late)));
        };
        if left.piece.is_empty() {
            left.since = None;
            match ready!(Pin::new(&mut left.body).poll_frame(context)) {
                None => {
                    this.ended = true;
                    *lock = None;
                    return Poll::Ready(None);
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => left.piece = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        }
        Poll::Ready(Some(Ok(Frame::data(left.next_piece()))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

/// The answer to a request of this connection, which the client has so long to take more of.
pub(super) fn with_write_deadline(
    response: Response,
    taking: Duration,
    tasks: &Tasks,
    open: Option<Open>,
) -> Response {
    let mut response: hyper::Response<_> = response.into();
    if response.body().is_end_stream() {
        return response.into();
    }
    // poem forgets it.
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    let answer = response.map(|body| {
        let left = Remaining { body, piece: Bytes::new(), since: Some(Instant::now()), open };
        let left = Arc::new(Mutex::new(Some(left)));
        let (here, gone) = oneshot::channel();
        watch(Arc::downgrade(&left), gone, taking, tasks);
        PacedBody { left, ended: false, _gone: here }
    });
    answer.into()
}

/// Sees to it that a client takes what there is for it, or lets go.
fn watch<B: Send + 'static>(
    left: Weak<Mutex<Option<Remaining<B>>>>,
    gone: oneshot::Receiver<()>,
    taking: Duration,
    tasks: &Tasks,
) {
    let stopping = tasks.clone();
    let watching = async move {
        loop {
            let looked = Instant::now();
            sleep(taking).await;
            let Some(left) = left.upgrade() else { break };
            let late = left.lock().take_if(|left| left.since.is_some_and(|since| since <= looked));
            if let Some(late) = late {
                tracing::debug!("a client does not take its answer; it is let go");
                if let Some(open) = &late.open {
                    open.is_not_taken();
                }
                break;
            }
        }
    };
    tasks.spawn(async move {
        tokio::select! {
            () = watching => {}
            _gone = gone => {}
            () = stopping.stopping() => {}
        }
    });
}
