//! The client's side of a connection with HTTP/1.
//!
//! A client may close its side once it has sent its request, and still read the answer. A client that leaves closes
//! its side too, later. So the time of the close decides: before the server has taken the request in, it is the
//! end of the request only; after that, the client has left.

use crate::activity::{Open, OpenRequest};
use parking_lot::Mutex;
use poem::Request;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;

/// How long a request of a client that has left may still be answered. Its close may be late on the way.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A socket whose client can be watched while hyper owns the socket. Both are polled by the same task.
pub(crate) struct Watched {
    read: Arc<Mutex<OwnedReadHalf>>,
    write: OwnedWriteHalf,
}

/// The watch over the client of one connection.
pub(crate) struct FarSide {
    read: Arc<Mutex<OwnedReadHalf>>,
    /// The request that the state is about.
    request: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The server has not taken the request in.
    Unknown,
    Open,
    /// The client closed its side with the request, or sends more.
    Unwatched,
    /// The client has left. The connection ends at this time.
    Left(Instant),
}

/// Lets a request end as soon as its client closes its side, even with the request: one that waits for work, or a
/// stream without an end. Does nothing for a request of another server than this one.
pub fn live_with_client(request: &Request) {
    if let Some(open) = request.extensions().get::<Open>() {
        open.mark_living_with_client();
    }
}

impl Watched {
    pub(crate) fn new(socket: TcpStream) -> (Self, FarSide) {
        let (read, write) = socket.into_split();
        let read = Arc::new(Mutex::new(read));
        (Self { read: read.clone(), write }, FarSide { read, request: 0, state: State::Unknown })
    }
}

impl FarSide {
    /// Looks at the client for this open request. Returns whether the connection ends now.
    pub(crate) async fn look(&mut self, request: Option<OpenRequest>) -> bool {
        let Some(request) = request.filter(|request| request.is_received) else {
            self.state = State::Unknown;
            return false;
        };
        if self.request != request.number {
            (self.request, self.state) = (request.number, State::Unknown);
        }
        if self.state == State::Unknown {
            let read = self.read.clone();
            self.state = match poll_fn(|context| Poll::Ready(peek(&read, context))).await {
                Poll::Pending => State::Open,
                // It came with the request.
                Poll::Ready(Ok(0)) if request.lives_with_client => return true,
                Poll::Ready(Ok(_)) => State::Unwatched,
                Poll::Ready(Err(_)) => return true,
            };
        }
        match self.state {
            State::Left(until) => request.lives_with_client || until <= Instant::now(),
            State::Unknown | State::Open | State::Unwatched => false,
        }
    }

    /// Completes when the client closes its side, or when a connection without a client ends.
    pub(crate) async fn changed(&mut self) {
        match self.state {
            State::Unknown | State::Unwatched => std::future::pending().await,
            State::Left(until) => tokio::time::sleep_until(until).await,
            State::Open => {
                let read = self.read.clone();
                self.state = match poll_fn(|context| peek(&read, context)).await {
                    Ok(0) => State::Left(Instant::now() + LAST_WORDS),
                    // The next request.
                    Ok(_) => State::Unwatched,
                    Err(_) => State::Left(Instant::now()),
                };
            }
        }
    }
}

/// Polls for the next byte without taking it. 0 bytes are the end.
fn peek(read: &Mutex<OwnedReadHalf>, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut byte = [0];
    read.lock().poll_peek(context, &mut ReadBuf::new(&mut byte))
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.read.lock()).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.write).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.write).poll_shutdown(context)
    }
}
