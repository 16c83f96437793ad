//! The model follows the plan in the user's message, records its requests, and refuses requests that
//! providers refuse.

use crate::clock::Clock;
use crate::history;
use crate::json::JsonPointer;
use crate::plan::{self, Plan};
use crate::random::Random;
use crate::record::{Book, ModelRequest};
use anyhow::Result;
use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderValue;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A running model. Dropping the value stops the model.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) address: SocketAddr,
    _serving: JoinSet<()>,
}

struct ModelState {
    book: Arc<Book>,
    clock: Clock,
    random: Mutex<Random>,
}

impl Model {
    pub(crate) async fn start(book: Arc<Book>, clock: Clock, seed: u64) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(ModelState { book, clock, random: Mutex::new(Random::of(seed, "model")) });
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let state = state.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(state.clone(), request));
                    let builder = auto::Builder::new(TokioExecutor::new());
                    // An error means that the client disconnected.
                    let _ended = builder.serve_connection(TokioIo::new(socket), service).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, _serving: serving })
    }
}

async fn answer(state: Arc<ModelState>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let read = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body: Value = serde_json::from_slice(&read).unwrap_or_default();
    let messages: Vec<Value> = body.at("/messages").as_array().cloned().unwrap_or_default();
    let refusal = history::refusal(&messages);
    let refused = refusal.clone();
    let conversation = plan::conversation(&messages).unwrap_or_default();
    state.book.model_requests.lock().push(ModelRequest {
        at: state.clock.now(),
        conversation,
        messages: messages.clone(),
        refusal,
    });
    if let Some(reason) = refused {
        let error = json!({ "error": { "type": "invalid_request_error", "message": reason } });
        return Ok(plain(400, &error));
    }
    let (fails, breaks, pause) = {
        let mut random = state.random.lock();
        // The server stores drafts of an answer that takes longer than a second.
        let longest = if random.percent(12) { 300 } else { 25 };
        (random.percent(2), random.percent(2), random.millis(0, longest))
    };
    if fails {
        return Ok(plain(503, &json!({ "error": { "message": "overloaded" } })));
    }
    let mut events = next_answer(&messages);
    if breaks {
        events.truncate(events.len() / 2);
    }
    Ok(streamed(events, pause))
}

fn plain(status: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response
}

fn streamed(events: Vec<Bytes>, pause: Duration) -> Response<Body> {
    let frames = stream::unfold(events.into_iter(), move |mut rest| async move {
        let next = rest.next()?;
        sleep(pause).await;
        Some((Ok(Frame::data(next)), rest))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
    response
}

/// Returns the next answer of the plan: the calls of the next step, or the end of the plan.
fn next_answer(messages: &[Value]) -> Vec<Bytes> {
    let Some((plan, steps_done)) = plan::current(messages) else {
        return answer_events("There is no plan.", &[]);
    };
    match plan.steps.get(steps_done) {
        Some(calls) => {
            let calls: Vec<Value> = calls.iter().enumerate().map(|(nth, call)| call.delta(nth)).collect();
            answer_events("I call. ", &calls)
        }
        None => answer_events(&Plan::end_of(&plan.conversation, plan.number), &[]),
    }
}

/// Returns the events of an answer. Each call is split into two deltas.
fn answer_events(text: &str, calls: &[Value]) -> Vec<Bytes> {
    let mut deltas: Vec<Value> =
        text.split_inclusive(' ').map(|word| json!({ "role": "assistant", "content": word })).collect();
    for call in calls {
        let arguments = call.at("/function/arguments").as_str().unwrap_or_default();
        let (first, second) = arguments.split_at_checked(arguments.len() / 2).unwrap_or((arguments, ""));
        let mut started = call.clone();
        if let Some(arguments) = started.pointer_mut("/function/arguments") {
            *arguments = first.into();
        }
        let more = json!({ "index": call.at("/index"), "function": { "arguments": second } });
        deltas.extend([started, more].map(|piece| json!({ "tool_calls": [piece] })));
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    let choice = |delta: Value| json!({ "index": 0, "delta": delta, "finish_reason": null });
    let mut choices: Vec<Value> = deltas.into_iter().map(choice).collect();
    choices.push(json!({ "index": 0, "delta": {}, "finish_reason": reason }));
    let chunk = |choice: Value| {
        let chunk = json!({ "id": "c", "object": "chat.completion.chunk", "created": 0, "model": "torture",
                            "choices": [choice] });
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let mut events: Vec<Bytes> = choices.into_iter().map(chunk).collect();
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}
