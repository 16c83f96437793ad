//! Pages of AI SDK 5 to 7: their posts, and the streams they read.

use super::Client;
use super::client::DataParts;
use crate::{JsonFields, in_repository};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// A turn streamed to such a page, read to its end.
#[derive(Debug)]
pub struct UiTurn {
    pub status: u16,
    pub headers: HeaderMap,
    pub raw: String,
    /// The chunks, without `[DONE]` and the data parts of held calls.
    pub chunks: Vec<Value>,
    /// The data parts of held calls, in order.
    pub parts: Vec<Value>,
}

impl UiTurn {
    #[track_caller]
    pub fn has_status(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.raw);
    }

    /// Asserts that the turn reported stored states only: there was nothing to continue.
    pub fn assert_states_only(&self) {
        assert_eq!((self.status, self.text().as_str()), (200, ""), "{}", self.raw);
    }

    /// Parses a turn from its body. A stream has to end with `[DONE]`.
    pub fn of(status: u16, headers: HeaderMap, raw: String) -> Self {
        let (mut chunks, mut parts) = (Vec::new(), DataParts::default());
        if status == 200 {
            let events = raw.strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("no end: {raw}"));
            for event in events.split_terminator("\n\n").filter(|event| !event.starts_with(':')) {
                let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("no event: {event:?}"));
                let chunk: Value = serde_json::from_str(data).unwrap();
                match chunk.text("type") {
                    "data-tool-hold" | "data-tool-decision" => {
                        parts.add(&chunk);
                        continue;
                    }
                    "data-tool-validation" => parts.label(&chunk["data"]),
                    "tool-approval-request" => parts.assert_card(&chunk["toolCallId"]),
                    _ => {}
                }
                chunks.push(chunk);
            }
        }
        let parts = parts.checked(&raw);
        Self { status, headers, raw, chunks, parts }
    }

    /// The types of the chunks; consecutive chunks of a type are one.
    pub fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<_> = self.chunks.iter().map(|chunk| chunk.text("type")).collect();
        kinds.dedup();
        kinds
    }

    /// The chunks of this type.
    pub fn all(&self, kind: &str) -> Vec<&Value> {
        self.chunks.iter().filter(|chunk| chunk["type"] == kind).collect()
    }

    pub fn one(&self, kind: &str) -> &Value {
        let all = self.all(kind);
        assert_eq!(all.len(), 1, "{kind} in {}", self.raw);
        all[0]
    }

    pub fn text(&self) -> String {
        self.all("text-delta").iter().map(|chunk| chunk.text("delta")).collect()
    }

    /// The id of the message that the turn writes.
    pub fn message_id(&self) -> &str {
        self.one("start").text("messageId")
    }

    /// The ids of the pending calls: in approval requests, or in 5 in data parts.
    pub fn pending(&self) -> Vec<String> {
        let requested = self.chunks.iter().filter_map(|chunk| match chunk.text("type") {
            "tool-approval-request" => Some(&chunk["toolCallId"]),
            "data-tool-validation" if chunk["data"]["validated"] == "pending" => Some(&chunk["id"]),
            _ => None,
        });
        requested.map(|id| id.as_str().unwrap().to_owned()).collect()
    }

    /// The error text of the turn.
    pub fn error(&self) -> Option<&str> {
        self.all("error").first().map(|chunk| chunk.text("errorText"))
    }

    /// The status and the error code of a refused turn.
    pub fn refused(&self) -> (u16, String) {
        let body: Value = serde_json::from_str(&self.raw).unwrap_or_default();
        (self.status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

impl Client {
    /// Runs one turn of the thread that the body names.
    pub async fn ui_turn(&self, body: &Value) -> UiTurn {
        self.read_ui(self.http.post(self.url("/qa/chat_streamed")).json(body)).await
    }

    /// The same, in this dialect.
    pub async fn ui_turn_as(&self, dialect: &str, body: &Value) -> UiTurn {
        let request = self.http.post(self.url("/qa/chat_streamed")).json(body);
        self.read_ui(request.header("x-stream-protocol", dialect)).await
    }

    /// Runs one turn of this thread.
    pub async fn ui_turn_in(&self, thread: &str, body: &Value) -> UiTurn {
        self.read_ui(self.http.post(self.url(&format!("/qa/chat_streamed/{thread}"))).json(body)).await
    }

    pub async fn read_ui(&self, request: reqwest::RequestBuilder) -> UiTurn {
        self.read_ui_on(request.send().await.unwrap()).await
    }

    /// Reads a turn that has started.
    pub async fn read_ui_on(&self, response: reqwest::Response) -> UiTurn {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        UiTurn::of(status, headers, response.text().await.unwrap())
    }
}

/// A user message as such a page holds it.
pub fn ui_user(id: &str, words: &str) -> Value {
    json!({ "parts": [{ "type": "text", "text": words }], "id": id, "role": "user" })
}

/// An answer as such a page holds it.
pub fn ui_assistant(id: &str, parts: &Value) -> Value {
    json!({ "id": id, "role": "assistant", "parts": parts })
}

/// A call that a person approved or rejected on the page. Such a part has more fields; the server reads only
/// these.
pub fn ui_answer(call: &str, tool: &str, approved: bool) -> Value {
    json!({ "type": format!("tool-{tool}"), "toolCallId": call, "state": "approval-responded",
            "approval": { "id": call, "approved": approved } })
}

/// The post of such a page with a new message, which is the last.
pub fn ui_submit(chat: &str, messages: &[Value]) -> Value {
    json!({ "id": chat, "messages": messages, "trigger": "submit-message" })
}

/// The post that edits the user message with this id, or resumes the assistant's.
pub fn ui_submit_at(chat: &str, messages: &[Value], message: &str) -> Value {
    json!({ "id": chat, "messages": messages, "trigger": "submit-message", "messageId": message })
}

/// The body of a request that a real page posted: `tests/wire/golden`. The recorded ids are replaced by these
/// names.
pub fn recorded(recording: &str, names: &[(&str, &str)]) -> Value {
    let path = format!("tests/wire/golden/{recording}.request.json");
    let path = in_repository(&path);
    let request: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut body = request["body"].to_string();
    for (recorded, name) in names {
        assert!(body.contains(&format!("\"{recorded}\"")), "{recorded} in {body}");
        body = body.replace(&format!("\"{recorded}\""), &format!("\"{name}\""));
    }
    serde_json::from_str(&body).unwrap()
}
