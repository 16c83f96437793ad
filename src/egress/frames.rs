//! The framing of streamed responses: server-sent events (WHATWG HTML, "Server-sent events") and JSON lines.
//!
//! The size of an unfinished event is limited. The reader uses only the field `data` of an event, because
//! servers with named or numbered events repeat the name and the number in the data.

use super::chain;
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use std::io;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::io::StreamReader;

/// The longest event. No server needs more, and an endless event would fill the memory.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// The first length of the buffer, in bytes, which grows to the length of an event. Most events are shorter.
const BUFFER_BYTES: usize = 1 << 10;

/// The framing of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Sse,
    JsonLines,
}

/// One frame of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The data of an event.
    Event(String),
    /// A sign of life.
    Comment,
}

/// The error of a stream without a next frame.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection broke.
    Stream(String),
    /// An event cannot be read.
    Event(&'static str),
}

type Chunks = BoxStream<'static, io::Result<Bytes>>;

/// A stream of frames.
pub(crate) struct Frames {
    lines: FramedRead<StreamReader<Chunks, Bytes>, LinesCodec>,
    framing: Framing,
    /// The data lines of an unfinished event.
    data: Option<String>,
    started: bool,
}

impl Frames {
    pub(crate) fn new(
        bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
        framing: Framing,
    ) -> Self {
        let chunks = bytes.map(|chunk| chunk.map_err(|error| io::Error::other(chain(error)))).boxed();
        let lines = LinesCodec::new_with_max_length(EVENT_BYTES_MAX);
        let lines = FramedRead::with_capacity(StreamReader::new(chunks), lines, BUFFER_BYTES);
        Self { lines, framing, data: None, started: false }
    }

    /// Returns the next frame. Returns `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Result<Frame, Broken>> {
        loop {
            match self.lines.next().await {
                Some(Ok(line)) => match self.line(line) {
                    Ok(None) => {}
                    Ok(Some(frame)) => return Some(Ok(frame)),
                    Err(error) => return Some(Err(error)),
                },
                Some(Err(LinesCodecError::MaxLineLengthExceeded)) => return Some(Err(too_long())),
                Some(Err(LinesCodecError::Io(error))) if error.kind() == io::ErrorKind::InvalidData => {
                    return Some(Err(Broken::Event("an event is not valid text")));
                }
                Some(Err(LinesCodecError::Io(error))) => {
                    return Some(Err(Broken::Stream(format!("the stream broke: {error}"))));
                }
                // Some servers end the stream without a blank line.
                None => return self.data.take().map(|data| Ok(Frame::Event(data))),
            }
        }
    }

    fn line(&mut self, mut line: String) -> Result<Option<Frame>, Broken> {
        if !self.started {
            self.started = true;
            if line.starts_with('\u{feff}') {
                line.remove(0);
            }
        }
        if self.framing == Framing::JsonLines {
            let blank = line.trim().is_empty();
            return Ok(Some(if blank { Frame::Comment } else { Frame::Event(line) }));
        }
        if line.is_empty() {
            return Ok(self.data.take().filter(|data| !data.trim().is_empty()).map(Frame::Event));
        }
        if line.starts_with(':') {
            return Ok(Some(Frame::Comment));
        }
        let field = line.strip_prefix("data").filter(|rest| rest.is_empty() || rest.starts_with(':'));
        let Some(value) = field else { return Ok(None) };
        let value = value.strip_prefix(':').unwrap_or(value);
        let value = value.strip_prefix(' ').unwrap_or(value);
        match &mut self.data {
            None => {
                let before = line.len() - value.len();
                line.drain(..before);
                self.data = Some(line);
            }
            Some(data) if data.len().saturating_add(value.len()) >= EVENT_BYTES_MAX => return Err(too_long()),
            Some(data) => {
                data.push('\n');
                data.push_str(value);
            }
        }
        Ok(None)
    }
}

fn too_long() -> Broken {
    Broken::Event("an event is too long")
}
