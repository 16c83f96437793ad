//! Reads request bodies within limits of length and time, without decompression.

use crate::activity::Open;
use crate::budget::{Exhausted, Reserved};
use crate::deadlines::Deadlines;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use poem::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use poem::{Body, Request};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Limits of draining a refused body: bytes, and time.
const DRAIN_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// The reason why a request body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The body is compressed. The result of a decompression may be a thousand times as long.
    #[error("it is compressed")]
    Encoded,
    /// The body is longer than this number of bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// The budget has no bytes left for the body.
    #[error("{0}")]
    NoRoom(#[from] Exhausted),
    /// The client closed the connection, or broke the framing of the body.
    #[error("cut off before its end")]
    CutOff,
    /// The next piece did not come within this deadline.
    #[error("nothing came for {0:?}")]
    Stalled(Duration),
    /// The body did not end within this deadline.
    #[error("it was not whole after {0:?}")]
    TooLate(Duration),
    /// The body came at fewer than this number of bytes per second.
    #[error("it came at fewer than {0} bytes per second")]
    TooSlow(u32),
}

/// Reads the body of a request to its end, within `bytes_max` and the deadlines of a body. The memory of the
/// body grows with the bytes that have arrived, whatever length the client declares, and each growth is taken
/// from the budget. The body holds its bytes of the budget until it is dropped.
///
/// # Errors
/// The body is refused. If it is refused while it is read, the rest stays in the request, for [`drain_body`].
pub async fn read_body(
    request: &mut Request,
    bytes_max: usize,
    deadlines: &Deadlines,
    mut reserved: Reserved,
) -> Result<Bytes, BodyError> {
    let mut encodings = request.headers().get_all(CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(BodyError::Encoded);
    }
    let declared = request.header(CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    if declared.is_some_and(|declared| declared > bytes_max) {
        return Err(BodyError::TooLong(bytes_max));
    }
    let capacity_max = declared.unwrap_or(bytes_max);
    let pace = Pace { began: Instant::now(), deadlines: deadlines.clamped() };
    let mut pieces = request.take_body().into_bytes_stream().boxed();
    let mut body = Vec::new();
    while let Some(piece) = pace.next(&mut pieces, body.len()).await? {
        let piece = piece.map_err(|_| BodyError::CutOff)?;
        let length = body.len().saturating_add(piece.len());
        // Doubled, so that all copies together are no longer than the body.
        let capacity = body.capacity().saturating_mul(2).min(capacity_max).max(length);
        let refused = if length > bytes_max {
            Some(BodyError::TooLong(bytes_max))
        } else if length > body.capacity() {
            let grown = reserved.grow(capacity).err().map(BodyError::NoRoom);
            if grown.is_none() {
                body.reserve_exact(capacity.saturating_sub(body.len()));
            }
            grown
        } else {
            None
        };
        if let Some(refused) = refused {
            request.set_body(Body::from_bytes_stream(pieces));
            return Err(refused);
        }
        body.extend_from_slice(&piece);
    }
    // A closed connection ends the stream without an error.
    if declared.is_some_and(|declared| body.len() < declared) {
        return Err(BodyError::CutOff);
    }
    if let Some(open) = request.extensions().get::<Open>() {
        open.mark_received();
    }
    Ok(reserved.hold(Bytes::from(body)))
}

/// How fast a body has to come.
struct Pace {
    began: Instant,
    deadlines: Deadlines,
}

impl Pace {
    /// Returns the next chunk, within all deadlines. Those of the whole body also cover a client that sends a
    /// single byte now and then.
    async fn next<S: Stream + Unpin>(
        &self,
        pieces: &mut S,
        received: usize,
    ) -> Result<Option<S::Item>, BodyError> {
        let Deadlines { body_piece, body, body_slow_start, body_bytes_per_second, .. } = self.deadlines;
        let sent_in = Duration::from_secs_f64(received as f64 / f64::from(body_bytes_per_second.max(1)));
        let due = [
            (Instant::now() + body_piece, BodyError::Stalled(body_piece)),
            (self.began + body, BodyError::TooLate(body)),
            (self.began + body_slow_start + sent_in.min(body), BodyError::TooSlow(body_bytes_per_second)),
        ];
        let [first, rest @ ..] = due;
        let (end, why) = rest.into_iter().fold(first, |a, b| if b.0 < a.0 { b } else { a });
        timeout_at(end, pieces.next()).await.map_err(|_| why)
    }
}

/// Drains the body of a refused request while the response is sent. Otherwise a client that sends its whole
/// body before it reads would find the connection closed, and no response. Reads at most 16 MiB and for at most five seconds.
pub async fn drain_body(mut request: Request) {
    // A client that sends `Expect` has not sent its body yet.
    if request.header(EXPECT).is_some() {
        return;
    }
    let mut pieces = request.take_body().into_bytes_stream().boxed();
    let mut left = DRAIN_BYTES;
    let reading = async {
        while let Some(Ok(piece)) = pieces.next().await {
            let Some(less) = left.checked_sub(piece.len()) else { break };
            left = less;
        }
    };
    // A client that sends more, or more slowly, is cut off.
    let _whole = tokio::time::timeout(DRAIN_TIME, reading).await;
}
