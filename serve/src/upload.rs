//! Reads request bodies within limits of length and time, without decompression.

use crate::budget::{Exhausted, Reserved};
use crate::deadlines::Deadlines;
use bytes::{Bytes, BytesMut};
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
    /// The bodies of other requests use the whole budget.
    #[error("other bodies use the whole memory for bodies")]
    NoRoom,
    /// The client closed the connection, or broke the framing of the body.
    #[error("cut off before its end")]
    CutOff,
    /// The next piece did not come within this deadline.
    #[error("nothing came for {0:?}")]
    Stalled(Duration),
    /// The body did not end within this deadline.
    #[error("it was not whole after {0:?}")]
    TooSlow(Duration),
}

/// Reads the body of a request to its end, within `bytes_max` and the deadlines
/// [`body`](Deadlines::body) and [`body_piece`](Deadlines::body_piece). The body holds its bytes of the budget
/// until it is dropped.
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
    let declared_bytes = declared.unwrap_or_default();
    reserved.grow(declared_bytes).map_err(|Exhausted| BodyError::NoRoom)?;
    let deadlines = deadlines.clamped();
    let end = Instant::now() + deadlines.body;
    let mut pieces = request.take_body().into_bytes_stream().boxed();
    let mut body = BytesMut::with_capacity(declared_bytes);
    while let Some(piece) = next_piece(&mut pieces, end, &deadlines).await? {
        let piece = piece.map_err(|_| BodyError::CutOff)?;
        let length = body.len().saturating_add(piece.len());
        let refused = match reserved.grow(length) {
            _ if length > bytes_max => Some(BodyError::TooLong(bytes_max)),
            Err(Exhausted) => Some(BodyError::NoRoom),
            Ok(()) => None,
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
    Ok(reserved.hold(body.freeze()))
}

/// Returns the next chunk, within both deadlines. The deadline of the whole body also covers a client that
/// sends a single byte now and then.
async fn next_piece<S: Stream + Unpin>(
    pieces: &mut S,
    end: Instant,
    deadlines: &Deadlines,
) -> Result<Option<S::Item>, BodyError> {
    let silent = Instant::now() + deadlines.body_piece;
    timeout_at(silent.min(end), pieces.next()).await.map_err(|_| {
        if silent < end {
            BodyError::Stalled(deadlines.body_piece)
        } else {
            BodyError::TooSlow(deadlines.body)
        }
    })
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
