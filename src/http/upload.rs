//! Reads request bodies within limits of length and time, without decompression.

use super::budget::{Exhausted, Reserved};
use super::deadlines::Deadlines;
use super::error::ApiError;
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use poem::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, EXPECT};
use poem::{Body, Request};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Limits of draining a refused body: bytes, and time.
const DRAIN_BYTES: usize = 16 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads the body of a request to its end. The body holds its bytes of the budget until it is dropped. If the
/// body is refused while it is read, the rest stays in the request.
pub(super) async fn read(
    request: &mut Request,
    bytes_max: usize,
    deadlines: &Deadlines,
    mut reserved: Reserved,
) -> Result<Bytes, ApiError> {
    let mut encodings = request.headers().get_all(CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(ApiError::encoded_body());
    }
    let declared = request.header(CONTENT_LENGTH).and_then(|length| length.parse::<usize>().ok());
    if declared.is_some_and(|declared| declared > bytes_max) {
        return Err(ApiError::body_too_large(bytes_max));
    }
    let declared_bytes = declared.unwrap_or_default();
    reserved.grow(declared_bytes).map_err(|Exhausted| ApiError::too_many_bodies())?;
    let end = Instant::now() + deadlines.body;
    let mut pieces = request.take_body().into_bytes_stream().boxed();
    let mut body = BytesMut::with_capacity(declared_bytes);
    while let Some(piece) = next_piece(&mut pieces, end, deadlines).await? {
        let piece = piece.map_err(|_| ApiError::bad_request("body: cut off before its end"))?;
        let length = body.len().saturating_add(piece.len());
        let refused = match reserved.grow(length) {
            _ if length > bytes_max => Some(ApiError::body_too_large(bytes_max)),
            Err(Exhausted) => Some(ApiError::too_many_bodies()),
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
        return Err(ApiError::bad_request("body: cut off before its end"));
    }
    Ok(reserved.hold(body.freeze()))
}

/// Returns the next chunk, within both deadlines. The deadline of the whole body also covers a client that
/// sends a single byte now and then.
async fn next_piece<S: Stream + Unpin>(
    pieces: &mut S,
    end: Instant,
    deadlines: &Deadlines,
) -> Result<Option<S::Item>, ApiError> {
    let silent = Instant::now() + deadlines.body_piece;
    timeout_at(silent.min(end), pieces.next()).await.map_err(|_| {
        let why = if silent < end {
            format!("body: nothing came for {:?}", deadlines.body_piece)
        } else {
            format!("body: it was not whole after {:?}", deadlines.body)
        };
        ApiError::bad_request(why)
    })
}

/// Drains the body of a refused request while the response is sent. Otherwise a client that sends its whole
/// body before it reads would find the connection closed, and no response.
pub(super) async fn drain(mut request: Request) {
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
