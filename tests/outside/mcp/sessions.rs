//! Forms of a server with a session, which do not say to which call they belong (`tests/mcp/session.mjs`).

use super::{entry, hold, node, packages, tool};
use holdpoint::config::Config;
use holdpoint_testkit::token::with_tokens;
use holdpoint_testkit::{Client, Embedded, JsonFields, eventually};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;
use tempfile::TempDir;

/// A text that only a person of the first tenant may read.
const SECRET: &str = "Ann's call: enter the code for account ANN-SECRET-77";

/// The server of the tests, a server of holdpoint that is connected to it, and a person of each of two tenants.
pub(super) struct Session {
    state: TempDir,
    pub(super) server: Embedded,
    pub(super) ann: Client,
    bob: Client,
}

impl Session {
    pub(super) async fn start(lines: &Value) -> Self {
        Self::with(lines, |_| {}).await
    }

    pub(super) async fn with(lines: &Value, change_also: impl FnOnce(&mut Config)) -> Self {
        let state = tempfile::tempdir().unwrap();
        let mut all = node("s", &[packages().join("session.mjs").to_str().unwrap()]);
        let fields = all.as_object_mut().unwrap();
        fields.insert("env".to_owned(), json!({ "STATE": state.path() }));
        fields.extend(lines.as_object().unwrap().clone());
        let entry = entry(&all);
        let change = |config: &mut Config| {
            with_tokens(config);
            config.mcp = vec![entry];
            config.approval.wait = Duration::ZERO;
            config.approval.sweep = Duration::from_millis(100);
            change_also(config);
        };
        let server = Box::pin(Embedded::with(change)).await;
        let ann = server.client.as_user("t1", "ann", &[]);
        let bob = server.client.as_user("t2", "bob", &[]);
        tool(&ann, "s__act").await;
        Self { state, server, ann, bob }
    }

    /// Has the server write these messages at once.
    pub(super) fn does(&self, commands: &Value) {
        let file = self.state.path().join("commands");
        let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
        file.write_all(format!("{commands}\n").as_bytes()).unwrap();
    }

    /// Starts a call of this person with this note, and waits until the server has it. Returns its id.
    pub(super) async fn call(&mut self, person: &Client, note: &str) -> String {
        self.server.client = person.clone();
        let id = hold(&self.server, "s__act", &json!({ "note": note })).await;
        person.approve(&id).await.has_status(202);
        self.reads("calls.log", |line| line == note).await;
        id
    }

    /// The lines of a file of the server.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.state.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn reads(&self, file: &str, expected: impl Fn(&str) -> bool) {
        let found = async || self.lines(file).iter().any(|line| expected(line)).then_some(());
        eventually("the server has written", found).await;
    }

    /// How often the server was started.
    pub(super) fn starts(&self) -> usize {
        self.lines("starts.log").len()
    }

    /// Has this person accept the open form with this content, and returns what the server got.
    pub(super) async fn is_answered(
        &self,
        person: &Client,
        call: &str,
        ask: &str,
        schema: &Value,
        content: &Value,
    ) -> Value {
        let request = eventually("the tool asks", async || open(person).await).await;
        assert_eq!((&request["tool_call_id"], &request["schema"]), (&json!(call), schema));
        let id = request.text("request_id");
        let accept = json!({ "action": "accept", "content": content });
        let accepted = person.post(&format!("/tool_requests/{id}/answer"), &accept).await;
        accepted.has_status(200);
        self.answer(ask).await
    }

    /// What the server got as the answer to this form.
    pub(super) async fn answer(&self, ask: &str) -> Value {
        let found = async || {
            let answers = self.lines("answers.log");
            let mut answers = answers.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
            answers.find(|answer| answer["ask"] == ask)
        };
        eventually("the form is answered", found).await
    }

    /// Has the server ask for what concerns ann alone, and checks that no person is asked.
    async fn asks_in_vain(&self, commands: &Value) {
        self.does(commands);
        assert_eq!(self.answer(SECRET).await, json!({ "ask": SECRET, "action": "cancel" }));
        assert_eq!(self.server.rows.count("tool_requests").await, 0);
    }

    /// Has the server ask, and checks that this person is asked, alone, and that the server gets the answer.
    async fn is_asked(&self, person: &Client, call: &str, ask: &str) {
        self.does(&json!([{ "ask": ask }]));
        let request = eventually("the tool asks", async || open(person).await).await;
        assert_eq!((&request["tool_call_id"], &request["message"]), (&json!(call), &json!(ask)));
        self.answers(person, &request, ask).await;
    }

    async fn answers(&self, person: &Client, request: &Value, ask: &str) {
        let id = request.text("request_id");
        let accept = json!({ "action": "accept", "content": { "code": "1234" } });
        person.post(&format!("/tool_requests/{id}/answer"), &accept).await.has_status(200);
        let answer = self.answer(ask).await;
        assert_eq!((&answer["action"], &answer["content"]), (&json!("accept"), &json!({ "code": "1234" })));
    }
}

/// The open request that this person sees.
async fn open(person: &Client) -> Option<Value> {
    person.get("/tool_requests?state=open").await.body_of(200).list("results").first().cloned()
}

async fn cancel(person: &Client, call: &str) {
    person.post(&format!("/tool_calls/{call}/cancel"), &json!({})).await;
    person.becomes(call, "interrupted").await;
}

#[tokio::test]
async fn with_the_calls_of_two_tenants_under_way_nobody_is_asked() {
    let mut session = Session::start(&json!({})).await;
    let (ann, bob) = (session.ann.clone(), session.bob.clone());
    session.call(&ann, "ann").await;
    session.call(&bob, "bob").await;
    session.asks_in_vain(&json!([{ "ask": SECRET }])).await;
}

#[tokio::test]
async fn a_form_is_of_no_other_tenant_if_its_call_ends_right_after_it() {
    for ends in ["finish", "fail", "task"] {
        let mut session = Session::start(&json!({})).await;
        let (ann, bob) = (session.ann.clone(), session.bob.clone());
        session.call(&ann, "ann").await;
        session.call(&bob, "bob").await;
        session.asks_in_vain(&json!([{ "ask": SECRET }, { ends: "ann" }])).await;
    }
}

#[tokio::test]
async fn a_form_about_a_task_is_of_no_other_tenant_until_the_task_has_ended() {
    for bob_is_first in [true, false] {
        let mut session = Session::start(&json!({})).await;
        let (ann, bob) = (session.ann.clone(), session.bob.clone());
        let of_bob = if bob_is_first { Some(session.call(&bob, "bob").await) } else { None };
        let of_ann = session.call(&ann, "ann").await;
        session.does(&json!([{ "task": "ann" }]));
        let owned = async || ann.call(&of_ann).await["result_deadline"].is_string().then_some(());
        eventually("the call has an owner", owned).await;
        let of_bob = match of_bob {
            Some(call) => call,
            None => session.call(&bob, "bob").await,
        };
        session.asks_in_vain(&json!([{ "ask": SECRET }])).await;
        session.does(&json!([{ "end": "ann" }]));
        ann.becomes(&of_ann, "succeeded").await;
        session.is_asked(&bob, &of_bob, "Which code, bob?").await;
    }
}

#[tokio::test]
async fn a_form_that_comes_with_the_task_of_its_call_is_of_no_other_tenant() {
    let mut session = Session::start(&json!({})).await;
    let (ann, bob) = (session.ann.clone(), session.bob.clone());
    session.call(&bob, "bob").await;
    session.call(&ann, "ann").await;
    session.asks_in_vain(&json!([{ "task": "ann" }, { "ask": SECRET }])).await;
}

#[tokio::test]
async fn a_form_about_a_cancelled_call_is_of_no_other_tenant_and_forms_are_back_after_its_late_answer() {
    for (late, bob_is_first) in [("finish", true), ("fail", false)] {
        let mut session = Session::start(&json!({})).await;
        let (ann, bob) = (session.ann.clone(), session.bob.clone());
        let of_bob = if bob_is_first { Some(session.call(&bob, "bob").await) } else { None };
        let of_ann = session.call(&ann, "ann").await;
        cancel(&ann, &of_ann).await;
        let of_bob = match of_bob {
            Some(call) => call,
            None => session.call(&bob, "bob").await,
        };
        session.asks_in_vain(&json!([{ "ask": SECRET }])).await;
        session.does(&json!([{ late: "ann" }]));
        session.is_asked(&bob, &of_bob, "Which code, bob?").await;
    }
}

#[tokio::test]
async fn forms_are_back_once_the_deadline_of_a_cancelled_call_is_reached() {
    let mut session = Session::start(&json!({ "timeout": "3s" })).await;
    let (ann, bob) = (session.ann.clone(), session.bob.clone());
    let of_ann = session.call(&ann, "ann").await;
    cancel(&ann, &of_ann).await;
    // Each call of bob ends before its own limit, and with it a form that reached no person.
    for n in 0.. {
        assert!(n < 100, "forms are not back");
        let note = format!("bob {n}");
        let of_bob = session.call(&bob, &note).await;
        session.does(&json!([{ "ask": note }]));
        let asked = async || match open(&bob).await {
            Some(request) => Some(Some(request)),
            None => (!session.lines("answers.log").is_empty()
                && session.lines("answers.log").iter().any(|line| line.contains(&format!("{note:?}"))))
            .then_some(None),
        };
        if let Some(request) = eventually("the form is shown or answered", asked).await {
            assert!(n > 0, "the server may still execute the first call");
            session.answers(&bob, &request, &note).await;
            return;
        }
        assert_eq!(session.answer(&note).await["action"], "cancel");
        session.does(&json!([{ "finish": note }]));
        bob.becomes(&of_bob, "succeeded").await;
    }
}
