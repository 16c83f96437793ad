//! The fake model: OpenAI's chat completions, streamed. The last user message determines the answer:
//!
//! - `plain:<tokens>:<milliseconds>`: that many tokens, one after each pause.
//! - `tool:<name>`: a call of that tool. After the result of the call, [`FINAL_TOKENS`] tokens.
//!
//! Each event is a chunk of its own in HTTP, as real servers send it. Token k leaves at k times the pause,
//! however late the token before it was.

use crate::http::{self, Answer};
use anyhow::{Context, Result};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use serde::Deserialize;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The byte that each token has once, in every format of a stream. The client counts tokens by it.
pub(crate) const TOKEN: u8 = b'~';

/// The tokens of an answer after the result of a tool.
pub(crate) const FINAL_TOKENS: u64 = 8;

/// Tokens as JSON text. Some need escapes or are not ASCII, as in real text.
const TOKENS: [&str; 16] = [
    "the~",
    " of~",
    " an~",
    "ing~",
    " to~",
    "\\n- ~",
    " is~",
    "ly. ~",
    " \\\"a~",
    " in~",
    "tion~",
    " \u{e9}t~",
    " we~",
    "ed, ~",
    " it~",
    " be~",
];

/// The arguments of a call, in pieces, as JSON text within JSON text.
const ARGUMENTS: [&str; 4] =
    [r#"{\"path\": \"/srv/"#, r#"data/file.txt\","#, r#" \"reason\": \"clean"#, r#"up\"}"#];

#[derive(Deserialize)]
struct ChatRequest {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    #[serde(default)]
    content: Value,
}

/// The answer of the model.
#[derive(Debug, PartialEq)]
enum Scenario {
    Plain { tokens: u64, pause: Duration },
    Call { tool: String },
}

/// Serves until the process ends.
pub(crate) async fn run(port: u16) -> Result<()> {
    http::serve(port, answer).await
}

async fn answer(request: Request<Incoming>) -> Result<Answer> {
    let body = request.into_body().collect().await?.to_bytes();
    let request: ChatRequest = serde_json::from_slice(&body)?;
    let scenario = scenario(&request.messages).context("the last user message names no scenario")?;
    let body = StreamBody::new(events(&scenario).map(|event| Ok(Frame::data(event))));
    let body = body.map_err(|never: Infallible| match never {}).boxed();
    Ok(Response::builder().header("content-type", "text/event-stream").body(body)?)
}

fn scenario(messages: &[Message]) -> Option<Scenario> {
    let content = &messages.iter().rfind(|message| message.role == "user")?.content;
    let text = content.as_str().or_else(|| content.get(0)?.get("text")?.as_str())?;
    let (kind, rest) = text.split_once(':')?;
    if kind == "tool" {
        return Some(match messages.last()?.role.as_str() {
            "tool" => Scenario::Plain { tokens: FINAL_TOKENS, pause: Duration::ZERO },
            _ => Scenario::Call { tool: rest.to_owned() },
        });
    }
    let (tokens, pause) = rest.split_once(':')?;
    Some(Scenario::Plain { tokens: tokens.parse().ok()?, pause: Duration::from_millis(pause.parse().ok()?) })
}

/// Returns the events of an answer, each at its time. The first one has no token and leaves at once.
fn events(scenario: &Scenario) -> impl stream::Stream<Item = Bytes> + Send + use<> {
    static ANSWERS: AtomicU64 = AtomicU64::new(0);
    let n = ANSWERS.fetch_add(1, Ordering::Relaxed);
    let (pause, deltas, reason) = match scenario {
        Scenario::Plain { tokens, pause } => {
            let content = TOKENS.iter().cycle().map(|token| format!(r#"{{"content":"{token}"}}"#));
            let begin = r#"{"role":"assistant","content":""}"#.to_owned();
            let tokens = usize::try_from(*tokens).unwrap_or(usize::MAX);
            (*pause, std::iter::once(begin).chain(content.take(tokens)).collect::<Vec<_>>(), "stop")
        }
        Scenario::Call { tool } => {
            let begin = format!(
                r#"{{"role":"assistant","content":null,"tool_calls":[{{"index":0,"id":"call_{n:019}","type":"function","function":{{"name":"{tool}","arguments":""}}}}]}}"#
            );
            let arguments = ARGUMENTS.map(|piece| {
                format!(r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{piece}"}}}}]}}"#)
            });
            (Duration::ZERO, std::iter::once(begin).chain(arguments).collect(), "tool_calls")
        }
    };
    let count = deltas.len();
    let end = [
        event(
            n,
            &format!(r#"{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":"{reason}"}}"#),
            "null",
        ),
        event(
            n,
            "",
            &format!(r#"{{"prompt_tokens":20,"completion_tokens":{count},"total_tokens":{}}}"#, count + 20),
        ),
        Bytes::from_static(b"data: [DONE]\n\n"),
    ];
    let began = Instant::now();
    let timed = stream::iter((0_u32..).zip(deltas)).then(move |(k, delta)| async move {
        if !pause.is_zero() {
            sleep_until(began + pause.saturating_mul(k)).await;
        }
        event(n, &format!(r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":null}}"#), "null")
    });
    timed.chain(stream::iter(end))
}

fn event(n: u64, choices: &str, usage: &str) -> Bytes {
    let event = format!(
        "data: {{\"id\":\"chatcmpl-{n:016}\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"bench-model\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_bench\",\"choices\":[{choices}],\"usage\":{usage}}}\n\n"
    );
    event.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(messages: &Value) -> Option<Scenario> {
        scenario(&Vec::<Message>::deserialize(messages).unwrap())
    }

    #[test]
    fn the_last_user_message_determines_the_answer() {
        let plain = |tokens, pause| Some(Scenario::Plain { tokens, pause: Duration::from_millis(pause) });
        let user = |content: Value| json!({ "role": "user", "content": content });
        let parts = json!([{ "type": "text", "text": "plain:3:50" }]);
        assert_eq!(of(&json!([user(json!("tool:x")), user(parts)])), plain(3, 50));
        let call = Some(Scenario::Call { tool: "x".to_owned() });
        assert_eq!(of(&json!([user(json!("tool:x"))])), call);
        let result = json!({ "role": "tool", "content": "done" });
        assert_eq!(of(&json!([user(json!("tool:x")), result])), plain(FINAL_TOKENS, 0));
        assert_eq!(of(&json!([user(json!("hello"))])), None);
    }

    #[tokio::test]
    async fn each_token_has_the_counted_byte_once() {
        let answer = events(&Scenario::Plain { tokens: 40, pause: Duration::ZERO });
        let bytes: Vec<u8> = answer.collect::<Vec<_>>().await.concat();
        assert_eq!(memchr::memchr_iter(TOKEN, &bytes).count(), 40);
        for line in std::str::from_utf8(&bytes).unwrap().lines().filter(|line| line.starts_with("data: {")) {
            serde_json::from_str::<Value>(&line[6..]).unwrap();
        }
    }
}
