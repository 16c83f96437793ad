//! The floors: what a proxy costs at least, without a database, a history or tools, on one thread.

use crate::http::{self, Answer};
use anyhow::{Context, Result};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

/// The work of a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Floor {
    /// Forwards the bytes of the model.
    Pass,
    /// Parses each event and encodes it as an event of the UI message stream (AI SDK 5 to 7).
    Ui,
}

/// A frame is not filled beyond this size.
const FRAME_BYTES: usize = 16 * 1024;

/// Serves until the process ends.
pub(crate) async fn run(port: u16, model: &str, floor: Floor) -> Result<()> {
    let uri: Uri = format!("{model}/chat/completions").parse().context("--model")?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    http::serve(port, move |request| forward(request, client.clone(), uri.clone(), floor)).await
}

async fn forward(
    request: Request<Incoming>,
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    floor: Floor,
) -> Result<Answer> {
    let body = request.into_body().collect().await?.to_bytes();
    let request = Request::post(uri).header("content-type", "application/json").body(Full::new(body))?;
    let answer = client.request(request).await?.into_body();
    let body = match floor {
        Floor::Pass => answer.boxed(),
        Floor::Ui => EncodedBody { answer, encoder: Encoder::default(), ended: false }.boxed(),
    };
    Ok(Response::builder().header("content-type", "text/event-stream").body(body)?)
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Delta<'a>,
    finish_reason: Option<&'a str>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Cow<'a, str>>,
}

/// Encodes the events of the model, whatever the cuts between the pieces.
#[derive(Default)]
struct Encoder {
    unread: BytesMut,
    started: bool,
}

impl Encoder {
    fn take(&mut self, piece: &[u8], out: &mut Vec<u8>) -> serde_json::Result<()> {
        self.unread.extend_from_slice(piece);
        while let Some(end) = memchr::memmem::find(&self.unread, b"\n\n") {
            let event = self.unread.split_to(end);
            self.unread.advance(2);
            match event.strip_prefix(b"data: ") {
                Some(b"[DONE]") => out.extend_from_slice(b"data: [DONE]\n\n"),
                Some(json) => self.encode(&serde_json::from_slice(json)?, out)?,
                None => {}
            }
        }
        Ok(())
    }

    fn encode(&mut self, chunk: &Chunk<'_>, out: &mut Vec<u8>) -> serde_json::Result<()> {
        for choice in &chunk.choices {
            if !self.started {
                self.started = true;
                out.extend_from_slice(
                    b"data: {\"type\":\"start\"}\n\ndata: {\"type\":\"text-start\",\"id\":\"0\"}\n\n",
                );
            }
            if let Some(text) = choice.delta.content.as_ref().filter(|text| !text.is_empty()) {
                out.extend_from_slice(b"data: {\"type\":\"text-delta\",\"id\":\"0\",\"delta\":");
                serde_json::to_writer(&mut *out, text)?;
                out.extend_from_slice(b"}\n\n");
            }
            if choice.finish_reason.is_some() {
                out.extend_from_slice(
                    b"data: {\"type\":\"text-end\",\"id\":\"0\"}\n\ndata: {\"type\":\"finish\"}\n\n",
                );
            }
        }
        Ok(())
    }
}

/// The answer of the model, encoded. What has arrived leaves in one frame.
struct EncodedBody {
    answer: Incoming,
    encoder: Encoder,
    ended: bool,
}

impl Body for EncodedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Task<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut out = Vec::new();
        while !self.ended && out.len() < FRAME_BYTES {
            match Pin::new(&mut self.answer).poll_frame(task) {
                Poll::Pending if out.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.ended = true,
                Poll::Ready(Some(Ok(frame))) => {
                    // A stream with an event that cannot be read ends early, and the client counts a failure.
                    let piece = frame.into_data().unwrap_or_default();
                    self.ended = self.encoder.take(&piece, &mut out).is_err();
                }
            }
        }
        Poll::Ready((!out.is_empty()).then(|| Ok(Frame::data(out.into()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_does_not_depend_on_the_cuts() {
        let answer = concat!(
            "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\\n\"},\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        );
        let expected = concat!(
            "data: {\"type\":\"start\"}\n\ndata: {\"type\":\"text-start\",\"id\":\"0\"}\n\n",
            "data: {\"type\":\"text-delta\",\"id\":\"0\",\"delta\":\"a\\n\"}\n\n",
            "data: {\"type\":\"text-end\",\"id\":\"0\"}\n\ndata: {\"type\":\"finish\"}\n\ndata: [DONE]\n\n",
        );
        for size in [1, 7, answer.len()] {
            let (mut encoder, mut out) = (Encoder::default(), Vec::new());
            for piece in answer.as_bytes().chunks(size) {
                encoder.take(piece, &mut out).unwrap();
            }
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{size}");
        }
    }
}
