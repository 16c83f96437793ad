//! The users that chat: they post the plan of the calls, read the stream, read the states of their calls, and
//! resume the turn.

use super::held_calls::HeldCall;
use super::users::User;
use super::{Load, decide};
use crate::http::Request;
use crate::json::JsonPointer;
use crate::mix::LEASE;
use crate::plan::{Plan, PlannedCall};
use crate::random::Random;
use crate::record::{Observation, Span, Turn};
use crate::stream::{Dialect, FactKind, StreamContent};
use crate::world::{HTTP_TOOL, MCP_TOOL, WORKER_TOOLS};
use hyper::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The maximal time that a user spends on a turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(30);

/// Chats until the load stops.
pub(super) async fn chat(load: Arc<Load>, number: usize) {
    let mut random = load.random("user", number);
    let owner = load.users.owner(number).clone();
    while !load.is_stopping() {
        let conversation = load.next_name();
        let replica = load.any_replica(&mut random);
        let made = load.send(replica, Request::post("/threads", &owner.token, None)).await;
        let thread = made.and_then(|response| response.json().at("/thread_id").as_str().map(str::to_owned));
        load.book().count("thread", thread.is_some());
        let Some(thread) = thread else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut chat =
            Chat { load: &load, random: &mut random, owner: owner.clone(), thread, dialect: Dialect::DataV1 };
        if chat.random.percent(50) {
            chat.dialect = Dialect::UiV6;
        }
        for turn in 1..=chat.random.between(1, 4) {
            let plan = chat.plan(&conversation, u32::try_from(turn).unwrap_or_default());
            chat.turn(&plan).await;
            if load.is_stopping() {
                return;
            }
        }
    }
}

struct Chat<'a> {
    load: &'a Arc<Load>,
    random: &'a mut Random,
    owner: User,
    thread: String,
    dialect: Dialect,
}

/// The state of a turn in the thread's messages.
enum TurnState {
    /// The user's message is missing.
    Missing,
    /// A call is open: `pending` has the pending calls.
    Open {
        pending: Vec<Value>,
    },
    /// The answer is streaming.
    Running,
    /// The model has not read all outcomes. The user resumes the message with this id.
    Unread(String),
    Done,
}

impl Chat<'_> {
    fn plan(&mut self, conversation: &str, number: u32) -> Plan {
        let steps = self.random.between(1, 3);
        let mut step = || {
            let calls = self.random.between(1, 4);
            (0..calls).map(|_| self.call()).collect()
        };
        let steps = (0..steps).map(|_| step()).collect();
        Plan { conversation: conversation.to_owned(), number, steps }
    }

    fn call(&mut self) -> PlannedCall {
        let n = self.load.next_call();
        let tools = [
            ("pay", 26),
            ("pay_idempotent", 11),
            ("pay_verified", 8),
            ("note", 11),
            ("note_idempotent", 6),
            (MCP_TOOL, 9),
            (HTTP_TOOL, 11),
            (WORKER_TOOLS[0], 11),
            (WORKER_TOOLS[1], 6),
            ("no_such_tool", 2),
            ("", 2),
        ];
        let tool = self.random.weighted(&tools).unwrap_or("pay");
        if tool.is_empty() {
            return PlannedCall { tool: "pay".to_owned(), arguments: format!("{{\"n\":{n},") };
        }
        let slow = self.random.percent(self.load.amount.slow);
        let (from, to) = self.load.amount.slow_ms;
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or_default();
        let ms = match self.random.between(0, 100) {
            _ if slow => self.random.between(from, to),
            0..12 => self.random.between(lease / 3, lease),
            _ => self.random.between(0, 400),
        };
        // A service reports every other outcome later.
        let later = if tool == HTTP_TOOL { 60 } else { 0 };
        let endings = [("ok", 90), ("later", later), ("fail", 6), ("crash", 3), ("hang", 1)];
        let then = self.random.weighted(&endings).unwrap_or("ok");
        PlannedCall {
            tool: tool.to_owned(),
            arguments: json!({ "n": n, "ms": ms, "then": then }).to_string(),
        }
    }

    /// Posts one message and follows its turn until the turn is complete or the user gives up.
    async fn turn(&mut self, plan: &Plan) {
        let text = plan.text();
        let until = Instant::now() + TURN_TIMEOUT;
        self.post_message(&text).await;
        // Some users write their next message before their calls have ended, after a few reads.
        let mut reads_left = if self.random.percent(15) { self.random.between(1, 4) } else { u64::MAX };
        while Instant::now() < until && !self.load.is_stopping() {
            let Some(state) = self.read_state(plan, &text).await else {
                sleep(Duration::from_millis(200)).await;
                continue;
            };
            match state {
                TurnState::Done => return,
                TurnState::Missing => self.post_message(&text).await,
                TurnState::Unread(message) => self.resume(&message).await,
                TurnState::Running => {
                    if self.random.percent(30) {
                        self.attach().await;
                    }
                }
                TurnState::Open { pending } => {
                    for call in pending {
                        self.start_deciders(
                            call.at("/tool_call_id"),
                            call.at("/tool_name"),
                            call.at("/input"),
                        )
                        .await;
                    }
                    reads_left = reads_left.saturating_sub(1);
                    if reads_left == 0 {
                        return;
                    }
                }
            }
            let pause = self.random.millis(50, 250);
            sleep(pause).await;
        }
    }

    async fn read_state(&mut self, plan: &Plan, text: &str) -> Option<TurnState> {
        let replica = self.load.any_replica(self.random);
        let path = format!("/threads/{}/messages?page_size=100", self.thread);
        let (page, span) = self.load.fetch(replica, path, &self.owner.token, "messages").await?;
        let messages = page.at("/results").as_array()?;
        for call in calls(messages) {
            self.load.book().observations.lock().extend(Observation::of(call, replica, "messages", span));
        }
        let is_question =
            |message: &&Value| message.at("/role") == "user" && message.at("/parts/0/text") == text;
        let Some(question) = messages.iter().position(|message| is_question(&message)) else {
            return Some(TurnState::Missing);
        };
        let answer = messages.get(question + 1)?;
        if answer.at("/status") == "streaming" {
            return Some(TurnState::Running);
        }
        let own: Vec<&Value> = calls(std::slice::from_ref(answer)).collect();
        let is_open =
            |call: &&&Value| matches!(call.at("/state").as_str(), Some("pending" | "approved" | "executing"));
        if own.iter().any(|call| is_open(&call)) {
            let pending = own.iter().filter(|call| call.at("/state") == "pending");
            return Some(TurnState::Open { pending: pending.map(|call| (*call).clone()).collect() });
        }
        let end = Plan::end_of(&plan.conversation, plan.number);
        let is_end = |part: &Value| part.at("/text").as_str().is_some_and(|text| text.ends_with(&end));
        let last = answer.at("/parts").as_array()?.last();
        if answer.at("/status") == "complete" && last.is_some_and(is_end) {
            return Some(TurnState::Done);
        }
        Some(TurnState::Unread(answer.at("/message_id").as_str()?.to_owned()))
    }

    async fn post_message(&mut self, text: &str) {
        let id = format!("m-{}", self.load.next_name());
        let body = match self.dialect {
            Dialect::DataV1 => json!({ "content": text }),
            Dialect::UiV6 => {
                let message =
                    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] });
                json!({ "id": self.thread, "messages": [message], "trigger": "submit-message" })
            }
        };
        self.post(Some(body)).await;
    }

    /// Resumes the turn in the way of the dialect: a page of `ui-v6` posts its message again.
    async fn resume(&mut self, message: &str) {
        let body = (self.dialect == Dialect::UiV6).then(|| {
            let shown = json!({ "id": message, "role": "assistant", "parts": [] });
            json!({ "id": self.thread, "messages": [shown], "trigger": "submit-message", "messageId": message })
        });
        self.post(body).await;
    }

    async fn post(&mut self, body: Option<Value>) {
        let path = format!("/qa/chat_streamed/{}", self.thread);
        self.stream(Request::post(path, &self.owner.token, body)).await;
    }

    async fn attach(&mut self) {
        let end = if self.dialect == Dialect::UiV6 { "/c/stream" } else { "" };
        let path = format!("/qa/chat_streamed/{}{end}", self.thread);
        self.stream(Request { method: Method::GET, ..Request::get(path, &self.owner.token) }).await;
    }

    async fn stream(&mut self, request: Request) {
        let replica = self.load.any_replica(self.random);
        let disconnects = self.random.percent(self.load.amount.disconnecting / 2);
        let disconnect = disconnects.then(|| self.load.amount.disconnect(self.random)).flatten();
        let started = self.load.now();
        let attached = request.method == Method::GET;
        let request = Request { dialect: Some(self.dialect.name()), ..request }.disconnecting(disconnect);
        let response = self.load.send(replica, request).await;
        if disconnect.is_none() {
            self.load.book().count("turn", response.as_ref().is_some_and(|response| response.status < 500));
        }
        let Some(response) = response else { return };
        let content = match response.status {
            200 => StreamContent::of(self.dialect, &response.text),
            _ => StreamContent::default(),
        };
        let span = Span { started, ended: self.load.now() };
        let stored = content.facts.iter().filter_map(|fact| match &fact.kind {
            FactKind::Stored { tool, inputs } => Some((fact.call.clone(), tool.clone(), inputs.clone())),
            _ => None,
        });
        let stored: Vec<_> = stored.collect();
        let pending: Vec<String> = content.pending().map(str::to_owned).collect();
        self.load.book().turns.lock().push(Turn {
            thread: self.thread.clone(),
            replica,
            dialect: self.dialect,
            attached,
            span,
            status: response.status,
            content,
            cut: response.cut,
        });
        for (call, tool, inputs) in stored {
            if pending.contains(&call) {
                self.start_deciders(&json!(call), &json!(tool), &inputs).await;
            }
        }
    }

    /// Starts the deciders of a call, if the call is new.
    async fn start_deciders(&mut self, call: &Value, tool: &Value, inputs: &Value) {
        let held = HeldCall {
            call: call.as_str().unwrap_or_default().to_owned(),
            thread: self.thread.clone(),
            owner: self.owner.clone(),
            tool: tool.as_str().unwrap_or_default().to_owned(),
            inputs: inputs.clone(),
            since: self.load.now(),
        };
        if self.load.held_calls.add(&held) {
            let mut deciders = self.load.deciders.lock().await;
            while deciders.try_join_next().is_some() {}
            deciders.spawn(decide::decide(self.load.clone(), held));
        }
    }
}

/// Returns the calls in messages, in the format of `GET /tool_calls/{id}`.
fn calls(messages: &[Value]) -> impl Iterator<Item = &Value> {
    let parts = messages.iter().filter_map(|message| message.at("/parts").as_array()).flatten();
    parts.filter_map(|part| part.get("tool_call"))
}
