//! A client of the HTTP interface.

use super::{JsonFields, eventually, token};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Value, json};

/// A client of one server.
#[derive(Debug, Clone)]
pub struct Client {
    pub http: reqwest::Client,
    pub base: String,
}

/// A response with a JSON body (null if it has none).
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    /// Asserts that the request failed with this status and this code.
    #[track_caller]
    pub fn failed_with(&self, status: u16, code: &str) {
        assert_eq!(self.failure(), (status, code), "{}", self.body);
    }

    /// The status and the code of a request that failed.
    pub fn failure(&self) -> (u16, &str) {
        (self.status, self.code())
    }

    #[track_caller]
    pub fn has_status(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.body);
    }

    /// Asserts the status, and the value of one field of the body.
    #[track_caller]
    pub fn has(&self, status: u16, field: &str, value: impl Into<Value>) {
        assert_eq!((self.status, &self.body[field]), (status, &value.into()), "{}", self.body);
    }

    /// The body of an answer with this status.
    #[track_caller]
    pub fn body_of(self, status: u16) -> Value {
        self.has_status(status);
        self.body
    }

    /// The message of the error shape.
    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }

    /// The code of the error shape.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// The data parts of held calls in one stream, with the labels of the calls.
#[derive(Debug, Default)]
pub(crate) struct DataParts {
    parts: Vec<Value>,
    /// The calls that were labelled with a decision.
    decided: Vec<Value>,
}

impl DataParts {
    /// Takes a data part. A stream has one part of each kind about a call.
    pub(crate) fn add(&mut self, part: &Value) {
        let same = |other: &&Value| (&other["type"], &other["id"]) == (&part["type"], &part["id"]);
        assert_eq!(self.parts.iter().find(same), None, "told twice");
        assert_eq!(part["id"], part["data"]["toolCallId"]);
        self.parts.push(part.clone());
    }

    /// Takes the label of a call.
    pub(crate) fn label(&mut self, label: &Value) {
        if label["validated"] == "pending" {
            self.assert_card(&label["toolCallId"]);
        } else {
            self.decided.push(label["toolCallId"].clone());
        }
    }

    /// Takes the request to decide a call, after its card.
    pub(crate) fn assert_card(&self, call: &Value) {
        let is_card = |part: &Value| part["type"] == "data-tool-hold" && part["id"] == *call;
        assert!(self.parts.iter().any(is_card), "no card of {call}: {:?}", self.parts);
    }

    /// The parts, at the end of the stream.
    pub(crate) fn checked(self, raw: &str) -> Vec<Value> {
        for call in &self.decided {
            let is_decision = |part: &Value| part["type"] == "data-tool-decision" && part["id"] == *call;
            assert!(self.parts.iter().any(is_decision), "no decision about {call}: {raw}");
        }
        self.parts
    }
}

/// One line of a `data-v1` stream.
pub(crate) type Line = (char, Value);

/// A streamed turn, read to its end.
#[derive(Debug)]
pub struct Turn {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub raw: String,
    /// The lines, without the lines `2:`.
    pub lines: Vec<Line>,
    /// The data parts of the lines `2:`, in order.
    pub parts: Vec<Value>,
}

impl Turn {
    /// Parses a turn from its body. Empty lines are keep-alives, which clients ignore. The card of a call has to
    /// precede its label `pending`, and any other label needs the decision.
    pub fn of(status: u16, headers: reqwest::header::HeaderMap, raw: String) -> Self {
        let parse = |line: &str| {
            let (code, json) = line.split_once(':').unwrap_or_else(|| panic!("no line: {line:?}"));
            (code.parse().unwrap(), serde_json::from_str(json).unwrap())
        };
        let lines = raw.lines().filter(|line| !line.is_empty());
        let all: Vec<Line> = if status == 200 { lines.map(parse).collect() } else { Vec::new() };
        let (mut lines, mut parts) = (Vec::new(), DataParts::default());
        for (code, value) in all {
            match code {
                '2' => value.as_array().unwrap().iter().for_each(|part| parts.add(part)),
                '8' => value.as_array().unwrap().iter().for_each(|label| parts.label(label)),
                _ => {}
            }
            if code != '2' {
                lines.push((code, value));
            }
        }
        let parts = parts.checked(&raw);
        Self { status, headers, raw, lines, parts }
    }

    #[track_caller]
    pub fn has_status(&self, status: u16) {
        assert_eq!(self.status, status, "{}", self.raw);
    }

    /// Asserts that the turn ended with an error of this code.
    #[track_caller]
    pub fn failed_with(&self, code: &str) {
        let found = self.error().split_once(": ").map(|(found, _)| found);
        assert_eq!(found, Some(code), "{}", self.raw);
    }

    /// The error that ended the turn: its code and its message.
    #[track_caller]
    pub fn error(&self) -> &str {
        let error = self.one('3').as_str();
        error.unwrap_or_else(|| panic!("the error is no text: {}", self.raw))
    }

    /// Asserts that the turn reported stored states only: there was nothing to continue.
    pub fn assert_states_only(&self) {
        assert_eq!((self.status, self.text().as_str()), (200, ""), "{}", self.raw);
    }

    /// The codes of the lines, text and argument deltas folded into one each.
    pub fn codes(&self) -> String {
        let mut codes = String::new();
        for (code, _) in &self.lines {
            if !(matches!(code, '0' | 'c' | 'g') && codes.ends_with(*code)) {
                codes.push(*code);
            }
        }
        codes
    }

    /// The lines with their text merged: consecutive text lines are one line.
    pub fn merged_lines(&self) -> Vec<Line> {
        let mut merged_lines: Vec<Line> = Vec::new();
        for (code, value) in &self.lines {
            match merged_lines.last_mut() {
                Some(('0', Value::String(words))) if *code == '0' => words.push_str(value.as_str().unwrap()),
                Some(('g', Value::String(words))) if *code == 'g' => words.push_str(value.as_str().unwrap()),
                Some(('c', last)) if *code == 'c' && last["toolCallId"] == value["toolCallId"] => {
                    let more = value.text("argsTextDelta");
                    last["argsTextDelta"] = (last.text("argsTextDelta").to_owned() + more).into();
                }
                _ => merged_lines.push((*code, value.clone())),
            }
        }
        merged_lines
    }

    pub fn text(&self) -> String {
        self.joined('0')
    }

    /// The texts of the lines with this code, concatenated.
    pub fn joined(&self, code: char) -> String {
        self.all(code).iter().map(|text| text.as_str().unwrap()).collect()
    }

    pub fn all(&self, code: char) -> Vec<&Value> {
        self.lines.iter().filter(|(found, _)| *found == code).map(|(_, value)| value).collect()
    }

    /// The status and the error code of a refused turn.
    pub fn refused(&self) -> (u16, String) {
        let body: Value = serde_json::from_str(&self.raw).unwrap_or_default();
        (self.status, body["error"]["code"].as_str().unwrap_or_default().to_owned())
    }

    pub fn one(&self, code: char) -> &Value {
        let all = self.all(code);
        assert_eq!(all.len(), 1, "lines {code:?} in {}", self.raw);
        all[0]
    }

    /// The ids of the pending calls in the `8:` lines.
    pub fn pending(&self) -> Vec<String> {
        let all = self.all('8').into_iter().flat_map(|entries| entries.as_array().unwrap());
        all.filter(|entry| entry["validated"] == "pending")
            .map(|entry| entry.text("toolCallId").to_owned())
            .collect()
    }
}

/// A client of servers without TLS. Reading the certificates of the machine would take longer than most tests.
fn http(headers: HeaderMap) -> reqwest::Client {
    reqwest::Client::builder().default_headers(headers).tls_certs_only([]).build().unwrap()
}

impl Client {
    pub fn new(base: String) -> Self {
        // Both the server under test and this client need a provider; the second attempt finds it installed.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        Self { http: http(HeaderMap::new()), base }
    }

    /// A client of the same server with this token.
    pub fn with_token(&self, token: &str) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        Self { http: http(headers), base: self.base.clone() }
    }

    /// A client of the same server as this user, if the server accepts the tokens of these tests.
    pub fn as_user(&self, tenant: &str, user: &str, roles: &[&str]) -> Self {
        self.with_token(&token::token(tenant, user, roles))
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status, headers, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.http.get(self.url(path))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.http.post(self.url(path)).json(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(self.http.put(self.url(path)).json(body)).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(self.http.patch(self.url(path)).json(body)).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.http.delete(self.url(path))).await
    }

    /// Posts these bytes as JSON, valid or not.
    pub async fn post_raw(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.http.post(self.url(path)).header("content-type", "application/json").body(body);
        self.send(request).await
    }

    /// Posts this JSON text, and returns the status and the text of the answer.
    pub async fn post_text(&self, path: &str, body: String) -> (u16, String) {
        let request = self.http.post(self.url(path)).header("content-type", "application/json").body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub async fn thread(&self) -> String {
        let made = self.send(self.http.post(self.url("/threads"))).await;
        made.body_of(201).text("thread_id").to_owned()
    }

    /// Runs one turn with this message.
    pub async fn send_message(&self, thread: &str, words: &str) -> Turn {
        self.turn(thread, &json!({ "content": words })).await
    }

    /// Resumes the thread with an empty body.
    pub async fn resume(&self, thread: &str) -> Turn {
        self.read(self.http.post(self.url(&format!("/qa/chat_streamed/{thread}")))).await
    }

    pub async fn turn(&self, thread: &str, body: &Value) -> Turn {
        self.read(self.http.post(self.url(&format!("/qa/chat_streamed/{thread}"))).json(body)).await
    }

    /// Begins a turn.
    pub async fn begin(&self, thread: &str, body: &Value) -> reqwest::Response {
        let path = format!("/qa/chat_streamed/{thread}");
        self.http.post(self.url(&path)).json(body).send().await.unwrap()
    }

    /// Runs one turn of the thread that the body names.
    pub async fn turn_by_id(&self, body: &Value) -> Turn {
        self.read(self.http.post(self.url("/qa/chat_streamed")).json(body)).await
    }

    /// The thread's current messages, oldest first.
    pub async fn messages(&self, thread: &str) -> Vec<Value> {
        let found = self.get(&format!("/threads/{thread}/messages")).await;
        found.body_of(200).list("results").clone()
    }

    /// The texts of the thread's current user messages, oldest first.
    pub async fn questions(&self, thread: &str) -> Vec<String> {
        let messages = self.messages(thread).await;
        let questions = messages.iter().filter(|message| message["role"] == "user");
        questions.map(|message| message["parts"][0].text("text").to_owned()).collect()
    }

    pub async fn read(&self, request: reqwest::RequestBuilder) -> Turn {
        self.read_on(request.send().await.unwrap()).await
    }

    /// Begins to resume the thread: the response arrives after the server has read the thread's state.
    pub async fn begin_resume(&self, thread: &str) -> reqwest::Response {
        let path = format!("/qa/chat_streamed/{thread}");
        self.http.post(self.url(&path)).send().await.unwrap()
    }

    /// Reads a turn that has started.
    pub async fn read_on(&self, response: reqwest::Response) -> Turn {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Turn::of(status, headers, response.text().await.unwrap())
    }

    pub async fn validate(&self, body: &Value) -> Answer {
        self.post("/qa/validate_tool", body).await
    }

    pub async fn approve(&self, call: &str) -> Answer {
        self.validate(&json!({ "toolCallId": call, "isValidated": true })).await
    }

    pub async fn reject(&self, call: &str) -> Answer {
        self.validate(&json!({ "toolCallId": call, "isValidated": false })).await
    }

    /// Waits until the run has this status.
    pub async fn run_becomes(&self, run: &str, status: &str) {
        let found = async || (self.get(&format!("/runs/{run}")).await.body["status"] == status).then_some(());
        eventually(&format!("the run becomes {status}"), found).await;
    }

    /// The run of a call.
    pub async fn run_of(&self, call: &str) -> String {
        self.call(call).await.text("run_id").to_owned()
    }

    pub async fn call(&self, call: &str) -> Value {
        self.get(&format!("/tool_calls/{call}")).await.body_of(200)
    }

    /// Waits until the call has this state, and returns it.
    pub async fn becomes(&self, call: &str, state: &str) -> Value {
        let found = async || Some(self.call(call).await).filter(|call| call["state"] == state);
        eventually(&format!("the call becomes {state}"), found).await
    }
}
