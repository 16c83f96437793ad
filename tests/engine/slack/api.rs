//! A Slack Web API for tests: it keeps the messages of each conversation, and answers as Slack documents it.

use holdpoint_testkit::{JsonFields, ReceivedRequest, eventually, read_request};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const TOKEN: &str = "xoxb-canary-token";

/// The path of a `response_url` that never answers.
pub(super) const HANGS: &str = "/hangs";

/// What the next request to the API gets.
#[derive(Debug, Clone)]
pub(crate) enum ApiAnswer {
    /// The status 200 and this error.
    Error(&'static str),
    /// The status 429, and the number of seconds to wait.
    TooMany(u32),
    /// This status, without JSON.
    Status(u16),
    /// No answer, although the message is posted.
    PostsAndHangs,
}

/// A message, and what it was before each change.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) channel: String,
    pub(super) ts: String,
    /// The requests that posted and changed it.
    pub(super) versions: Vec<Value>,
}

impl Message {
    pub(super) fn now(&self) -> &Value {
        self.versions.last().unwrap()
    }

    /// The texts of the blocks, in order.
    pub(super) fn texts(&self) -> Vec<String> {
        let blocks = self.now().list("blocks");
        blocks.iter().filter_map(|block| Some(block["text"]["text"].as_str()?.to_owned())).collect()
    }

    pub(super) fn buttons(&self) -> Vec<Value> {
        let blocks = self.now().list("blocks");
        let actions = blocks.iter().filter(|block| block["type"] == "actions");
        actions.flat_map(|block| block.list("elements").clone()).collect()
    }

    pub(super) fn button(&self, action_id: &str) -> Value {
        let found = self.buttons().into_iter().find(|button| button["action_id"] == action_id);
        found.unwrap_or_else(|| panic!("no {action_id}: {self:?}"))
    }
}

#[derive(Debug, Default)]
struct SlackState {
    next: VecDeque<ApiAnswer>,
    /// What every other request gets, if it is not served.
    now: Option<ApiAnswer>,
    messages: Vec<Message>,
    /// The forms that were opened.
    views: Vec<Value>,
    /// The requests to the API, and what it answered.
    requests: Vec<(ReceivedRequest, String)>,
    /// The messages that only one user sees, with the paths of their URLs.
    notices: Vec<(String, Value)>,
}

#[derive(Debug, Clone)]
pub(crate) struct FakeSlack {
    pub(crate) base: String,
    kept: Arc<Mutex<SlackState>>,
}

impl FakeSlack {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let slack = Self { base, kept: Arc::default() };
        let serving = slack.clone();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let slack = serving.clone();
                tokio::spawn(async move { slack.serve(socket).await });
            }
        });
        slack
    }

    /// Says this to the next requests, one each.
    pub(super) fn next(&self, says: impl IntoIterator<Item = ApiAnswer>) {
        self.kept.lock().unwrap().next.extend(says);
    }

    /// Says this to every further request, or serves it.
    pub(crate) fn now(&self, says: Option<ApiAnswer>) {
        self.kept.lock().unwrap().now = says;
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        self.kept.lock().unwrap().messages.clone()
    }

    /// The forms that were opened.
    pub(super) fn views(&self) -> Vec<Value> {
        self.kept.lock().unwrap().views.clone()
    }

    pub(super) fn notices(&self) -> Vec<(String, Value)> {
        self.kept.lock().unwrap().notices.clone()
    }

    pub(crate) fn requests(&self) -> Vec<(ReceivedRequest, String)> {
        self.kept.lock().unwrap().requests.clone()
    }

    /// Waits for this many messages.
    pub(super) async fn got(&self, count: usize) -> Vec<Message> {
        let enough = async || Some(self.messages()).filter(|all| all.len() >= count);
        eventually(&format!("{count} messages are posted"), enough).await
    }

    /// Waits until the message at this place has this many versions.
    pub(super) async fn changed(&self, place: usize, versions: usize) -> Message {
        let enough = async || self.messages().get(place).filter(|it| it.versions.len() >= versions).cloned();
        eventually(&format!("message {place} has {versions} versions"), enough).await
    }

    /// Waits for the texts of this many notices.
    pub(super) async fn noticed(&self, count: usize) -> Vec<String> {
        let enough = async || Some(self.notices()).filter(|all| all.len() >= count);
        let all = eventually(&format!("{count} notices arrive"), enough).await;
        all.iter().map(|(_, notice)| notice.text("text").to_owned()).collect()
    }

    async fn serve(&self, mut socket: TcpStream) {
        let Some(received) = read_request(&mut socket).await else { return };
        let (head, body) = match received.path.strip_prefix("/api/") {
            Some(method) => match self.answer(method, &received) {
                Some(answer) => answer,
                None => {
                    while socket.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                    return;
                }
            },
            None => {
                self.kept.lock().unwrap().notices.push((received.path.clone(), received.json()));
                if received.path == HANGS {
                    while socket.read(&mut [0; 64]).await.is_ok_and(|count| count > 0) {}
                    return;
                }
                ("200 OK".to_owned(), "ok".to_owned())
            }
        };
        let length = body.len();
        let answer =
            format!("HTTP/1.1 {head}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        // A client that has left reads no answer.
        let _written = socket.write_all(answer.as_bytes()).await;
        let _closed = socket.shutdown().await;
    }

    /// Returns the status line with further headers, and the body. `None` for no answer.
    fn answer(&self, method: &str, received: &ReceivedRequest) -> Option<(String, String)> {
        let mut kept = self.kept.lock().unwrap();
        let says = kept.next.pop_front().or_else(|| kept.now.clone());
        let answer = match says {
            Some(ApiAnswer::Error(error)) => Some(json!({ "ok": false, "error": error }).to_string()),
            Some(ApiAnswer::TooMany(seconds)) => {
                kept.requests.push((received.clone(), "429".to_owned()));
                return Some((format!("429 X\r\nretry-after: {seconds}"), String::new()));
            }
            Some(ApiAnswer::Status(status)) => {
                kept.requests.push((received.clone(), status.to_string()));
                return Some((format!("{status} X"), "<html>".to_owned()));
            }
            Some(ApiAnswer::PostsAndHangs) => {
                done(&mut kept, method, received);
                None
            }
            None => Some(done(&mut kept, method, received).to_string()),
        };
        kept.requests.push((received.clone(), answer.clone().unwrap_or_default()));
        Some(("200 OK\r\ncontent-type: application/json".to_owned(), answer?))
    }
}

/// Posts or changes a message, as Slack documents it.
fn done(kept: &mut SlackState, method: &str, received: &ReceivedRequest) -> Value {
    if received.header("authorization") != format!("Bearer {TOKEN}") {
        return json!({ "ok": false, "error": "invalid_auth" });
    }
    assert_eq!(received.header("content-type"), "application/json; charset=utf-8");
    let body = received.json();
    if method == "views.open" {
        if let Some(wrong) = wrong_view(&body) {
            return json!({ "ok": false, "error": "invalid_arguments", "response_metadata": { "messages": [wrong] } });
        }
        kept.views.push(body["view"].clone());
        return json!({ "ok": true, "view": body["view"] });
    }
    if let Some(wrong) = wrong_blocks(&body["blocks"]) {
        return json!({ "ok": false, "error": "invalid_blocks", "response_metadata": { "messages": [wrong] } });
    }
    let to = body.text("channel");
    match method {
        "chat.postMessage" => {
            // A message to a user is in the conversation of the application with the user.
            let channel = if to.starts_with('U') { format!("D{to}") } else { to.to_owned() };
            let ts = format!("1700000000.{:06}", kept.messages.len() + 1);
            let message = Message { channel: channel.clone(), ts: ts.clone(), versions: vec![body] };
            kept.messages.push(message);
            json!({ "ok": true, "channel": channel, "ts": ts, "message": {} })
        }
        "chat.update" => {
            let found =
                kept.messages.iter_mut().find(|message| message.channel == to && body["ts"] == message.ts);
            let Some(message) = found else { return json!({ "ok": false, "error": "message_not_found" }) };
            message.versions.push(body.clone());
            json!({ "ok": true, "channel": to, "ts": body["ts"], "text": "" })
        }
        _ => json!({ "ok": false, "error": "unknown_method" }),
    }
}

fn length(text: &Value) -> usize {
    text.as_str().map_or(usize::MAX, |text| text.chars().count())
}

fn is_plain(text: &Value, max: usize) -> bool {
    text["type"] == "plain_text" && (1..=max).contains(&length(&text["text"]))
}

/// What is wrong with a request that opens a form, by the limits of the reference of views and Block Kit.
fn wrong_view(body: &Value) -> Option<String> {
    let view = &body["view"];
    let input = |block: &Value| {
        let element = &block["element"];
        block["type"] == "input"
            && is_plain(&block["label"], 2000)
            && is_plain(&block["hint"], 2000)
            && length(&block["block_id"]) <= 255
            && element["type"] == "plain_text_input"
            && length(&element["action_id"]) <= 255
            && element["max_length"].as_u64().is_some_and(|max| (1..=3000).contains(&max))
    };
    let is_right = length(&body["trigger_id"]) <= 100
        && view["type"] == "modal"
        && is_plain(&view["title"], 24)
        && is_plain(&view["submit"], 24)
        && is_plain(&view["close"], 24)
        && length(&view["callback_id"]) <= 255
        && length(&view["private_metadata"]) <= 3000
        && view.list("blocks").iter().all(input);
    (!is_right).then(|| view.to_string())
}

/// Whether a confirmation is within the limits.
fn is_confirmation(confirm: &Value) -> bool {
    is_plain(&confirm["title"], 100)
        && is_plain(&confirm["text"], 300)
        && is_plain(&confirm["confirm"], 30)
        && is_plain(&confirm["deny"], 30)
}

/// What is wrong with blocks, by the limits of the reference of Block Kit.
fn wrong_blocks(blocks: &Value) -> Option<String> {
    if blocks.as_array().unwrap().len() > 50 {
        return Some("too many blocks".to_owned());
    }
    for block in blocks.as_array().unwrap() {
        let is_right = match block.text("type") {
            "header" => is_plain(&block["text"], 150),
            "section" => is_plain(&block["text"], 3000),
            "actions" => block.list("elements").iter().all(|button| {
                button["type"] == "button"
                    && is_plain(&button["text"], 75)
                    && length(&button["action_id"]) <= 255
                    && (button["value"].is_null() || length(&button["value"]) <= 2000)
                    && (button["confirm"].is_null() || is_confirmation(&button["confirm"]))
                    && (button["url"].is_null() || length(&button["url"]) <= 3000)
            }),
            _ => false,
        };
        if !is_right {
            return Some(block.to_string());
        }
    }
    None
}
