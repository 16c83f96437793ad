//! The framing of streamed responses: server-sent events (WHATWG HTML, "Server-sent events") and JSON lines.
//!
//! The size of an unfinished event is limited. Of an event the reader uses its name and its data. A server that
//! answers with one JSON document in place of events is read as well.

use super::chain;
use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{BoxStream, Stream, StreamExt};

/// The longest event. No server needs more, and an endless event would fill the memory.
const EVENT_BYTES_MAX: usize = 8 << 20;

/// The name of an event about a failure.
pub const ERROR: &str = "error";

/// The framing of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Server-Sent Events.
    Sse,
    /// One JSON value in each line.
    JsonLines,
}

/// One frame of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// An event.
    Event {
        /// The name, or an empty text.
        name: String,
        /// The data of the event; its lines joined.
        data: String,
    },
    /// A JSON document in place of events.
    Document(String),
    /// A sign of life.
    Comment,
}

/// The error of a stream without a next frame.
#[derive(Debug)]
pub enum BrokenStream {
    /// The connection broke.
    Stream(String),
    /// An event cannot be read.
    Event(&'static str),
}

/// A stream of frames.
pub struct Frames {
    chunks: BoxStream<'static, reqwest::Result<Bytes>>,
    lines: Lines,
    framing: Framing,
    /// The name and the data lines of an unfinished event.
    name: String,
    data: Option<String>,
    /// The lines of an unfinished document.
    document: Option<String>,
    started: bool,
    /// Whether a line was no field of an event, so that the body may be no stream at all.
    has_other_lines: bool,
}

impl Frames {
    /// Reads the frames of a response.
    pub fn new(bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static, framing: Framing) -> Self {
        Self {
            chunks: bytes.fuse().boxed(),
            lines: Lines::default(),
            framing,
            name: String::new(),
            data: None,
            document: None,
            started: false,
            has_other_lines: false,
        }
    }

    /// Returns whether the body has lines that belong to no event.
    pub const fn has_other_lines(&self) -> bool {
        self.has_other_lines
    }

    /// Returns the next frame. Returns `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Result<Frame, BrokenStream>> {
        loop {
            let line = match self.next_line().await {
                Ok(line) => line,
                Err(error) => return Some(Err(error)),
            };
            // Some servers end the stream without a blank line.
            let Some(line) = line else {
                return self.document.take().map(Frame::Document).or_else(|| self.event()).map(Ok);
            };
            match self.line(line) {
                Ok(None) => {}
                Ok(Some(frame)) => return Some(Ok(frame)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    async fn next_line(&mut self) -> Result<Option<String>, BrokenStream> {
        loop {
            if let Some(line) = self.lines.take()? {
                return Ok(Some(line));
            }
            match self.chunks.next().await {
                // The chunk is dropped before the next one is read: it is a part of the buffer of its connection, which
                // takes another buffer as long as the chunk is there.
                Some(Ok(chunk)) => self.lines.add(&chunk),
                Some(Err(error)) => {
                    return Err(BrokenStream::Stream(format!("the stream broke: {}", chain(error))));
                }
                None => return Ok(self.lines.take_rest()),
            }
        }
    }

    fn line(&mut self, mut line: String) -> Result<Option<Frame>, BrokenStream> {
        if !self.started {
            if line.starts_with('\u{feff}') {
                line.remove(0);
            }
            self.started = !line.trim().is_empty();
            if self.started && self.framing == Framing::Sse && line.trim_start().starts_with(['{', '[']) {
                self.document = Some(line);
                return Ok(None);
            }
        }
        if self.framing == Framing::JsonLines {
            let blank = line.trim().is_empty();
            let event = |data| Frame::Event { name: String::new(), data };
            return Ok(Some(if blank { Frame::Comment } else { event(line) }));
        }
        if let Some(document) = &mut self.document {
            // Some servers end a document as they end a stream. No line of JSON begins with this name.
            if !line.starts_with("data:") {
                append(document, &line)?;
                return Ok(None);
            }
            let document = self.document.take().map(Frame::Document);
            self.field(line)?;
            return Ok(document);
        }
        if line.is_empty() {
            return Ok(self.event());
        }
        if line.starts_with(':') {
            return Ok(Some(Frame::Comment));
        }
        self.field(line)?;
        Ok(None)
    }

    fn field(&mut self, mut line: String) -> Result<(), BrokenStream> {
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => append(data, value)?,
                None => {
                    let before = line.len().saturating_sub(value.len());
                    line.drain(..before);
                    self.data = Some(line);
                }
            },
            "event" => self.name = value.to_owned(),
            // Old servers of llama.cpp report a failure in a field of its own.
            ERROR => {
                self.name = ERROR.to_owned();
                self.data = Some(value.to_owned());
            }
            "id" | "retry" => {}
            _ => self.has_other_lines = true,
        }
        Ok(())
    }

    /// Returns the finished event, if it has data.
    fn event(&mut self) -> Option<Frame> {
        let name = std::mem::take(&mut self.name);
        let data = self.data.take().filter(|data| !data.trim().is_empty())?;
        Some(Frame::Event { name, data })
    }
}

/// Appends a line to the lines of an event.
fn append(lines: &mut String, line: &str) -> Result<(), BrokenStream> {
    if lines.len().saturating_add(line.len()) >= EVENT_BYTES_MAX {
        return Err(too_long());
    }
    lines.push('\n');
    lines.push_str(line);
    Ok(())
}

fn too_long() -> BrokenStream {
    BrokenStream::Event("an event is too long")
}

/// Splits bytes into lines that end with CR, LF or both. Bytes that are no UTF-8 become U+FFFD, as the standard
/// requires.
#[derive(Debug, Default)]
struct Lines {
    bytes: BytesMut,
    /// Whether the last line ended with CR, so that a LF belongs to its end.
    after_return: bool,
    /// The bytes of the unfinished line in which no end was found.
    searched: usize,
}

impl Lines {
    fn add(&mut self, chunk: &[u8]) {
        self.bytes.extend_from_slice(chunk);
    }

    /// Takes the next line that has an end.
    fn take(&mut self) -> Result<Option<String>, BrokenStream> {
        if self.after_return
            && let Some(first) = self.bytes.first()
        {
            self.after_return = false;
            if *first == b'\n' {
                self.bytes.advance(1);
            }
        }
        let unsearched = self.bytes.get(self.searched..).unwrap_or_default();
        let Some(found) = unsearched.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.searched = self.bytes.len();
            return if self.searched > EVENT_BYTES_MAX { Err(too_long()) } else { Ok(None) };
        };
        let length = self.searched.saturating_add(found);
        self.searched = 0;
        if length > EVENT_BYTES_MAX {
            return Err(too_long());
        }
        let line = text(self.bytes.get(..length));
        self.bytes.advance(length);
        self.after_return = self.bytes.get_u8() == b'\r';
        Ok(Some(line))
    }

    /// Takes the line without an end, after the last byte.
    fn take_rest(&mut self) -> Option<String> {
        self.searched = 0;
        let rest = std::mem::take(&mut self.bytes);
        (!rest.is_empty()).then(|| text(Some(&rest)))
    }
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt, stream};

    fn read(text: &str, cut: usize) -> Vec<String> {
        let pieces: Vec<_> = text.as_bytes().chunks(cut).map(|it| Ok(Bytes::copy_from_slice(it))).collect();
        let mut frames = Frames::new(stream::iter(pieces), Framing::Sse);
        let mut read = Vec::new();
        while let Some(frame) = frames.next().now_or_never().unwrap() {
            read.push(match frame.unwrap() {
                Frame::Event { name, data } => format!("{name}={data}"),
                Frame::Document(json) => format!("document={json}"),
                Frame::Comment => ":".to_owned(),
            });
        }
        read
    }

    #[test]
    fn events_have_their_name_and_their_data_whatever_ends_the_lines() {
        let text =
            "\u{feff}: hi\nevent: a\nid: 1\ndata: x\ndata:y\n\nevent: b\n\ndata: z\n\ndata\n\ndata: end";
        for end in ["\n", "\r\n", "\r"] {
            for cut in [1, 7, 1000] {
                let read = read(&text.replace('\n', end), cut);
                assert_eq!(read, [":", "a=x\ny", "=z", "=end"], "{end:?} {cut}");
            }
        }
    }

    #[test]
    fn a_field_with_an_error_is_an_error_event() {
        assert_eq!(read("error: {\"code\":500}\n\ndata: x\n\n", 9), ["error={\"code\":500}", "=x"]);
    }

    #[test]
    fn a_document_in_place_of_events_is_read_whole() {
        assert_eq!(read("\n{\n \"a\": 1\n}\n", 3), ["document={\n \"a\": 1\n}"]);
        assert_eq!(read("{\"a\":1}\n\ndata: [DONE]\n\n", 3), ["document={\"a\":1}\n", "=[DONE]"]);
        assert_eq!(read("[{\"a\":1}]", 3), ["document=[{\"a\":1}]"]);
    }

    #[test]
    fn bytes_that_are_no_utf8_become_the_replacement_character() {
        let bytes = Bytes::from_static(b"data: a\xffb\n\n");
        let mut frames = Frames::new(stream::iter([Ok(bytes)]), Framing::Sse);
        let frame = frames.next().now_or_never().unwrap().unwrap().unwrap();
        assert_eq!(frame, Frame::Event { name: String::new(), data: "a\u{fffd}b".to_owned() });
    }
}
