//! The users that chat: they post the plan of the calls, read the stream, read the states of their calls, and
//! resume the turn.

use super::board::Known;
use super::people::Person;
use super::{Amount, Load, decide};
use crate::chance::Chance;
use crate::http::{Ask, How, Leave};
use crate::json::At;
use crate::plan::{Plan, PlannedCall};
use crate::record::{Sight, Span, Turn};
use crate::told::{Dialect, Said, Told};
use crate::world::LEASE;
use hyper::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The maximal time that a user spends on a turn.
const CARES: Duration = Duration::from_secs(30);

/// Chats until the load stops.
pub(super) async fn talk(load: Arc<Load>, number: usize) {
    let mut chance = load.chance("user", number);
    let owner = load.people.owner(number).clone();
    while !load.is_stopping() {
        let conversation = load.next_name();
        let replica = load.any_replica(&mut chance);
        let made = load.ask(replica, Ask::post("/threads", &owner.token, None)).await;
        let thread = made.and_then(|reply| reply.json().at("/thread_id").as_str().map(str::to_owned));
        load.book().count("thread", thread.is_some());
        let Some(thread) = thread else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut talk =
            Talk { load: &load, chance: &mut chance, owner: owner.clone(), thread, dialect: Dialect::DataV1 };
        if talk.chance.percent(50) {
            talk.dialect = Dialect::UiV6;
        }
        for turn in 1..=talk.chance.between(1, 4) {
            let plan = talk.plan(&conversation, u32::try_from(turn).unwrap_or_default());
            talk.turn(&plan).await;
            if load.is_stopping() {
                return;
            }
        }
    }
}

struct Talk<'a> {
    load: &'a Arc<Load>,
    chance: &'a mut Chance,
    owner: Person,
    thread: String,
    dialect: Dialect,
}

/// The state of a turn in the thread's messages.
enum Stands {
    /// The user's message is missing.
    Unsaid,
    /// A call is open: `waits` has the pending calls.
    Open {
        waits: Vec<Value>,
    },
    /// The answer is streaming.
    Running,
    /// The model has not read all outcomes. The user resumes the message with this id.
    Unread(String),
    Done,
}

impl Talk<'_> {
    fn plan(&mut self, conversation: &str, number: u32) -> Plan {
        let steps = self.chance.between(1, 3);
        let mut step = || {
            let calls = self.chance.between(1, 4);
            (0..calls).map(|_| self.call()).collect()
        };
        let steps = (0..steps).map(|_| step()).collect();
        Plan { conversation: conversation.to_owned(), number, steps }
    }

    fn call(&mut self) -> PlannedCall {
        let n = self.load.next_call();
        let tools = [
            ("pay", 50),
            ("pay_idempotent", 14),
            ("pay_verified", 10),
            ("note", 14),
            ("note_idempotent", 8),
            ("no_such_tool", 2),
            ("", 2),
        ];
        let tool = self.chance.weighted(&tools).unwrap_or("pay");
        if tool.is_empty() {
            return PlannedCall { tool: "pay".to_owned(), arguments: format!("{{\"n\":{n},") };
        }
        let slow = self.chance.percent(self.load.amount.slow);
        let (from, to) = self.load.amount.slow_ms;
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or_default();
        let ms = match self.chance.between(0, 100) {
            _ if slow => self.chance.between(from, to),
            0..12 => self.chance.between(lease / 3, lease),
            _ => self.chance.between(0, 400),
        };
        let thens = [("ok", 90), ("fail", 6), ("panic", 3), ("hang", 1)];
        let then = self.chance.weighted(&thens).unwrap_or("ok");
        PlannedCall {
            tool: tool.to_owned(),
            arguments: json!({ "n": n, "ms": ms, "then": then }).to_string(),
        }
    }

    /// Posts one message and follows its turn until the turn is complete or the user gives up.
    async fn turn(&mut self, plan: &Plan) {
        let words = plan.words();
        let until = Instant::now() + CARES;
        self.say(&words).await;
        // Some users write their next message before their calls have ended, after a few looks.
        let mut patience = if self.chance.percent(15) { self.chance.between(1, 4) } else { u64::MAX };
        while Instant::now() < until && !self.load.is_stopping() {
            let Some(stands) = self.look(plan, &words).await else {
                sleep(Duration::from_millis(200)).await;
                continue;
            };
            match stands {
                Stands::Done => return,
                Stands::Unsaid => self.say(&words).await,
                Stands::Unread(message) => self.go_on(&message).await,
                Stands::Running => {
                    if self.chance.percent(30) {
                        self.attach().await;
                    }
                }
                Stands::Open { waits } => {
                    for call in waits {
                        self.hear_of(call.at("/tool_call_id"), call.at("/tool_name"), call.at("/input"))
                            .await;
                    }
                    patience = patience.saturating_sub(1);
                    if patience == 0 {
                        return;
                    }
                }
            }
            let pause = self.chance.millis(50, 250);
            sleep(pause).await;
        }
    }

    async fn look(&mut self, plan: &Plan, words: &str) -> Option<Stands> {
        let replica = self.load.any_replica(self.chance);
        let path = format!("/threads/{}/messages?page_size=100", self.thread);
        let (page, span) = self.load.fetch(replica, path, &self.owner.token, "messages").await?;
        let messages = page.at("/results").as_array()?;
        for call in calls(messages) {
            self.load.book().sights.lock().extend(Sight::of(call, replica, "messages", span));
        }
        let said = |message: &&Value| message.at("/role") == "user" && message.at("/parts/0/text") == words;
        let Some(question) = messages.iter().position(|message| said(&message)) else {
            return Some(Stands::Unsaid);
        };
        let answer = messages.get(question + 1)?;
        if answer.at("/status") == "streaming" {
            return Some(Stands::Running);
        }
        let own: Vec<&Value> = calls(std::slice::from_ref(answer)).collect();
        let is_open =
            |call: &&&Value| matches!(call.at("/state").as_str(), Some("pending" | "approved" | "executing"));
        if own.iter().any(|call| is_open(&call)) {
            let waits = own.iter().filter(|call| call.at("/state") == "pending");
            return Some(Stands::Open { waits: waits.map(|call| (*call).clone()).collect() });
        }
        let end = Plan::end_of(&plan.conversation, plan.number);
        let is_end = |part: &Value| part.at("/text").as_str().is_some_and(|text| text.ends_with(&end));
        let last = answer.at("/parts").as_array()?.last();
        if answer.at("/status") == "complete" && last.is_some_and(is_end) {
            return Some(Stands::Done);
        }
        Some(Stands::Unread(answer.at("/message_id").as_str()?.to_owned()))
    }

    async fn say(&mut self, words: &str) {
        let id = format!("m-{}", self.load.next_name());
        let body = match self.dialect {
            Dialect::DataV1 => json!({ "content": words }),
            Dialect::UiV6 => {
                let message =
                    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": words }] });
                json!({ "id": self.thread, "messages": [message], "trigger": "submit-message" })
            }
        };
        self.post(Some(body)).await;
    }

    /// Resumes the turn in the way of the dialect: a page of `ui-v6` posts its message again.
    async fn go_on(&mut self, message: &str) {
        let body = (self.dialect == Dialect::UiV6).then(|| {
            let shown = json!({ "id": message, "role": "assistant", "parts": [] });
            json!({ "id": self.thread, "messages": [shown], "trigger": "submit-message", "messageId": message })
        });
        self.post(body).await;
    }

    async fn post(&mut self, body: Option<Value>) {
        let path = format!("/qa/chat_streamed/{}", self.thread);
        self.stream(Ask::post(path, &self.owner.token, body)).await;
    }

    async fn attach(&mut self) {
        let end = if self.dialect == Dialect::UiV6 { "/c/stream" } else { "" };
        let path = format!("/qa/chat_streamed/{}{end}", self.thread);
        self.stream(Ask { method: Method::GET, ..Ask::get(path, &self.owner.token) }).await;
    }

    async fn stream(&mut self, ask: Ask) {
        let replica = self.load.any_replica(self.chance);
        let leaves = self.chance.percent(self.load.amount.leaving / 2);
        let leave = leaves.then(|| leave(&self.load.amount, self.chance)).flatten();
        let begun = self.load.now();
        let attached = ask.method == Method::GET;
        let ask = Ask { dialect: Some(self.dialect.name()), ..ask }.leaving(leave);
        let reply = self.load.ask(replica, ask).await;
        if leave.is_none() {
            self.load.book().count("turn", reply.as_ref().is_some_and(|reply| reply.status < 500));
        }
        let Some(reply) = reply else { return };
        let told = match reply.status {
            200 => Told::of(self.dialect, &reply.text),
            _ => Told::default(),
        };
        let span = Span { begun, ended: self.load.now() };
        let stored = told.facts.iter().filter_map(|fact| match &fact.said {
            Said::Stored { tool, inputs } => Some((fact.call.clone(), tool.clone(), inputs.clone())),
            _ => None,
        });
        let stored: Vec<_> = stored.collect();
        let pending: Vec<String> = told.pending().map(str::to_owned).collect();
        self.load.book().turns.lock().push(Turn {
            thread: self.thread.clone(),
            replica,
            dialect: self.dialect,
            attached,
            span,
            status: reply.status,
            told,
            cut: reply.cut,
        });
        for (call, tool, inputs) in stored {
            if pending.contains(&call) {
                self.hear_of(&json!(call), &json!(tool), &inputs).await;
            }
        }
    }

    /// Starts the deciders of a call, if the call is new.
    async fn hear_of(&mut self, call: &Value, tool: &Value, inputs: &Value) {
        let known = Known {
            call: call.as_str().unwrap_or_default().to_owned(),
            thread: self.thread.clone(),
            owner: self.owner.clone(),
            tool: tool.as_str().unwrap_or_default().to_owned(),
            inputs: inputs.clone(),
            since: self.load.now(),
        };
        if self.load.board.add(&known) {
            let mut deciders = self.load.deciders.lock().await;
            while deciders.try_join_next().is_some() {}
            deciders.spawn(decide::decide(self.load.clone(), known));
        }
    }
}

/// Returns the calls in messages, in the format of `GET /tool_calls/{id}`.
fn calls(messages: &[Value]) -> impl Iterator<Item = &Value> {
    let parts = messages.iter().filter_map(|message| message.at("/parts").as_array()).flatten();
    parts.filter_map(|part| part.get("tool_call"))
}

/// Draws a disconnect.
pub(super) fn leave(amount: &Amount, chance: &mut Chance) -> Option<Leave> {
    let how = *chance.pick(&How::ALL)?;
    let (from, to) = amount.leaving_ms;
    Some(Leave { after: chance.millis(from, to), how })
}
