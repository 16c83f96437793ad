//! Response bodies with a write deadline.
//!
//! A body is handed to the server piece by piece, so a slow client has one piece in memory. If a client does
//! not read a piece within the write deadline, the rest of the response is dropped. Without the deadline, a
//! client could keep the response in memory indefinitely: an HTTP/2 client can stay connected and leave
//! single responses unread. The work that the request started continues. A response without pending output
//! has no deadline.

use crate::activity::Open;
use bytes::Bytes;
use hyper::body::{Body, Frame};
use parking_lot::Mutex;
use poem::http::header::CONTENT_LENGTH;
use poem::{Endpoint, Request, Response, Result};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span};

/// Maximum length of a piece, in bytes. A client on a slow line also has the whole deadline for one piece.
const PIECE_BYTES: usize = 64 << 10;
/// Chunks longer than this, in bytes, are handed over without their last byte, which follows as a piece of
/// its own. hyper polls the body as soon as its buffer has room for one byte, and after the end of the body
/// this module cannot see what hyper still buffers. The separate last byte delays the end until hyper has
/// room for the rest.
const WHOLE_BYTES: usize = 1 << 10;

/// The remainder of a response.
#[derive(Debug)]
struct Remaining<B> {
    body: B,
    piece: Bytes,
    /// Since when the client has a piece to read; `None` while there is no output.
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

/// A response body that hyper polls.
#[derive(Debug)]
struct PacedBody<B> {
    left: Arc<Mutex<Option<Remaining<B>>>>,
    ended: bool,
    _dropped: oneshot::Sender<()>,
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

/// An endpoint with a write deadline, for an endpoint that another server serves. A [`Server`](crate::Server)
/// applies its write deadline by itself.
#[derive(Debug)]
pub struct WriteDeadline<E> {
    endpoint: E,
    deadline: Duration,
}

impl<E> WriteDeadline<E> {
    /// Gives a client `deadline` to read each piece of a response of `endpoint`.
    pub fn new(endpoint: E, deadline: Duration) -> Self {
        Self { endpoint, deadline }
    }
}

impl<E: Endpoint> Endpoint for WriteDeadline<E> {
    type Output = Response;

    async fn call(&self, request: Request) -> Result<Response> {
        let response = self.endpoint.get_response(request).await;
        Ok(with_write_deadline(response, self.deadline, None))
    }
}

/// Takes the body of a response if its length is known. Any other body is a stream, and stays in the response.
pub async fn take_whole(response: Response) -> (Response, Option<Bytes>) {
    let response: hyper::Response<_> = response.into();
    let is_whole = response.body().size_hint().exact().is_some_and(|length| length > 0);
    let mut response = Response::from(response);
    if !is_whole {
        return (response, None);
    }
    let whole = response.take_body().into_bytes().await;
    (response, whole.ok())
}

/// Wraps the body of a response so that the client has `taking` to read each piece.
pub(crate) fn with_write_deadline(response: Response, taking: Duration, open: Option<Open>) -> Response {
    let mut response: hyper::Response<_> = response.into();
    let span = response.extensions_mut().remove().unwrap_or_else(Span::current);
    if response.body().is_end_stream() {
        return response.into();
    }
    // poem drops the exact size of a body, so the header is set here.
    if let Some(length) = response.body().size_hint().exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    let answer = response.map(|body| {
        let left = Remaining { body, piece: Bytes::new(), since: Some(Instant::now()), open };
        let left = Arc::new(Mutex::new(Some(left)));
        let (here, dropped) = oneshot::channel();
        watch(Arc::downgrade(&left), dropped, taking, span);
        PacedBody { left, ended: false, _dropped: here }
    });
    answer.into()
}

/// Drops the rest of a response whose client exceeds the write deadline.
fn watch<B: Send + 'static>(
    left: Weak<Mutex<Option<Remaining<B>>>>,
    dropped: oneshot::Receiver<()>,
    taking: Duration,
    span: Span,
) {
    let watching = async move {
        loop {
            let looked = Instant::now();
            sleep(taking).await;
            let Some(left) = left.upgrade() else { break };
            let late = left.lock().take_if(|left| left.since.is_some_and(|since| since <= looked));
            if let Some(late) = late {
                tracing::debug!("a client did not read its response in time; the response is dropped");
                if let Some(open) = &late.open {
                    open.mark_unread();
                }
                break;
            }
        }
    };
    let watching = async move {
        tokio::select! {
            () = watching => {}
            _dropped = dropped => {}
        }
    };
    #[expect(clippy::disallowed_methods, reason = "the task ends with its response")]
    tokio::spawn(watching.instrument(span));
}
