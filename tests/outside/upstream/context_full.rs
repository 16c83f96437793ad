//! Conversations that are longer than the model can read.

use super::{Stage, on_each_wire};
use holdpoint::tools::{Permit, Tool, ToolError, ToolRegistry};
use holdpoint_testkit::wires::Refusal;
use holdpoint_testkit::wires::chat::WIRE as CHAT;
use holdpoint_testkit::{
    BadServer, Client, Embedded, Probe, RawResponse, ScriptedAnswer, Turn, Wire, postgres, probes,
};
use serde_json::{Value, json};

const LEFT_OUT: &str = "[Earlier messages of this conversation were left out.]";
const SHORTENED: &str = "[…shortened]";

/// How servers of the wire refuse such a conversation: status and body.
fn refusals(wire: Wire) -> Vec<(u16, String)> {
    let Refusal { status, body } = wire.facts().too_long;
    let too_large = (413, "<html>413 Request Entity Too Large</html>".to_owned());
    vec![(status, body.to_owned()), too_large]
}

async fn a_conversation_that_is_too_long_has_a_code_of_its_own_and_is_not_sent_again(wire: Wire) {
    let stage = Stage::on(wire).await;
    for (status, body) in refusals(wire) {
        stage.upstream.then(RawResponse::refuses(status, &body));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "context_full", "").await;
        let error = turn.error();
        assert!(error.contains("Begin a new one, or edit an earlier message."), "{error}");
        stage.next_turn_works(&thread).await;
    }
    let words = "prompt is too long: 213462 tokens > 200000 maximum";
    let answer = ScriptedAnswer::on(wire).event(wire.error(false, words).to_string());
    stage.upstream.answers(&answer);
    let (thread, turn) = stage.run_turn().await;
    stage.failed(&thread, &turn, "context_full", "").await;
    stage.next_turn_works(&thread).await;
    assert_eq!(stage.upstream.requests().len(), 6, "none was sent again");
}
on_each_wire!(side by side a_conversation_that_is_too_long_has_a_code_of_its_own_and_is_not_sent_again);

/// The messages of a request, as they were written.
fn messages(body: &Value) -> Vec<String> {
    let list = ["messages", "input", "contents"].iter().find_map(|list| body[list].as_array()).unwrap();
    list.iter().map(Value::to_string).collect()
}

/// A tool with a long result.
struct Print;

impl Tool for Print {
    const NAME: &'static str = "print";
    const DESCRIPTION: &'static str = "Prints much.";
    const HIL: bool = false;
    type Input = Probe;
    type Output = String;

    async fn execute(&self, input: Probe, _permit: Permit<Self>) -> Result<String, ToolError> {
        Ok(input.note.repeat(9000))
    }
}

impl Stage {
    /// A stage whose only tool is `print`.
    async fn prints(wire: Wire) -> Self {
        let Self { upstream, app, .. } = Self::on(wire).await;
        let mut tools = ToolRegistry::new();
        tools.register(Print).unwrap();
        let model = upstream.model(&json!({}));
        let app = app.redeploy_with(tools, |config| config.model = model).await;
        Self { wire, upstream, app }
    }

    /// A turn with a long result of a call.
    async fn print(&self, thread: &str) -> Turn {
        let call = ScriptedAnswer::call_on(self.wire, "", "print", &[r#"{"note":"n"}"#]);
        self.upstream.answers(&call).words("Seen.");
        self.run_turn_in(thread).await
    }
}

async fn a_refused_conversation_is_sent_again_once_with_less_of_it(wire: Wire) {
    let stage = Stage::prints(wire).await;
    let (status, body) = refusals(wire).swap_remove(0);
    let thread = stage.app.client.thread().await;
    stage.print(&thread).await;
    stage.upstream.then(RawResponse::refuses(status, &body)).words("Shorter.");
    let turn = stage.run_turn_in(&thread).await;
    assert_eq!(turn.text(), "Shorter.", "{}", turn.raw);
    stage.is(&turn, "completed").await;
    let requests = stage.upstream.requests();
    let [_, _, refused, taken] = &requests[..] else { panic!("{requests:#?}") };
    let [refused, taken] = [refused, taken].map(|request| request.body.to_string());
    assert!(!refused.contains(SHORTENED) && taken.contains(SHORTENED), "{taken}");
    assert!(taken.len() < refused.len(), "{} and {}", taken.len(), refused.len());

    // A server that refuses the shorter one too is not asked a third time.
    stage.print(&thread).await;
    stage.upstream.then(RawResponse::refuses(status, &body)).then(RawResponse::refuses(status, &body));
    let turn = stage.run_turn_in(&thread).await;
    turn.failed_with("context_full");
    stage.next_turn_works(&thread).await;
    let known = stage.app.client.get(&format!("/threads/{thread}")).await.body;
    assert!(known["context_limit"].as_u64().is_some_and(|limit| limit >= 1024), "{known}");
}
on_each_wire!(side by side a_refused_conversation_is_sent_again_once_with_less_of_it);

/// An answer of a server that counts a token for three bytes of the request.
fn counted(bytes: usize) -> ScriptedAnswer {
    let finish = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": bytes / 3, "completion_tokens": 5 } });
    let answer = ScriptedAnswer::on(CHAT).words(&["Yes."]);
    answer.event(finish.to_string()).event(usage.to_string()).event("[DONE]")
}

#[tokio::test]
async fn a_conversation_stays_below_its_limit_of_tokens_and_its_beginning_moves_rarely() {
    let stage = Stage::with(CHAT, json!({ "context_tokens": 6000 })).await;
    let (thread, _, call) = stage.held(&ScriptedAnswer::call_on(CHAT, "", "pay", &[r#"{"note":"1"}"#])).await;
    let mut bytes = 3000;
    let mut turn = async |words: &str| {
        stage.upstream.answers(&counted(bytes));
        let said = format!("{words} {}", "w".repeat(1000));
        let turn = stage.app.client.send_message(&thread, &said).await;
        assert_eq!(turn.text(), "Yes.", "{}", turn.raw);
        bytes = stage.upstream.last().to_string().len();
        assert!(bytes / 3 < 6600, "{bytes}");
        stage.upstream.last()
    };
    let mut sent = Vec::new();
    for n in 0..30 {
        sent.push(messages(&turn(&format!("while it waits {n}")).await));
    }
    let moves = sent.windows(2).filter(|pair| !pair[1].starts_with(&pair[0])).count();
    assert!((1..=8).contains(&moves), "{moves} of 29");
    let last = sent.last().unwrap().concat();
    assert!(last.contains(LEFT_OUT) && !last.contains("while it waits 0 "), "{last}");
    assert!(last.contains("Awaiting approval"), "a call that waits is never left out");
    assert_eq!(stage.app.client.approve(&call).await.body["state"], "succeeded");
    let note = turn("and now?").await.to_string();
    assert!(note.contains("[tool outcome] pay") && note.contains("Awaiting approval"), "{note}");
    for n in 0..30 {
        sent.push(messages(&turn(&format!("afterwards {n}")).await));
    }
    let last = sent.last().unwrap().concat();
    assert!(!last.contains("Awaiting approval") && !last.contains("[tool outcome]"), "{last}");
    assert_eq!(last.matches(LEFT_OUT).count(), 1);
    let known = stage.app.client.get(&format!("/threads/{thread}")).await.body;
    assert_eq!(known["context_limit"], 6000);
    assert!(known["context_tokens"].as_u64().is_some_and(|tokens| tokens > 3000), "{known}");
    let listed = stage.app.client.get("/threads").await.body;
    assert_eq!(listed["results"][0].get("context_tokens"), None, "{listed}");
}

/// The questions in a request.
fn asked(request: &Value) -> Vec<usize> {
    let text = request.to_string();
    (0..40).filter(|n| text.contains(&format!("question {n} "))).collect()
}

/// Asks this question, and returns the questions of the request that the server took. The server counts about what it gets.
async fn ask(upstream: &BadServer, client: &Client, thread: &str, n: usize) -> Vec<usize> {
    let before = upstream.requests().last().map_or(3000, |request| request.body.to_string().len() + 1000);
    upstream.answers(&counted(before));
    let turn = client.send_message(thread, &format!("question {n} {}", "w".repeat(1000))).await;
    assert_eq!(turn.text(), "Yes.", "{}", turn.raw);
    asked(&upstream.last())
}

#[tokio::test]
async fn what_a_refusal_left_out_stays_out_after_a_restart() {
    let mut stage = Stage::on(CHAT).await;
    let thread = stage.app.client.thread().await;
    let questions = async |stage: &Stage, n: usize| ask(&stage.upstream, &stage.app.client, &thread, n).await;
    for n in 0..12 {
        assert_eq!(questions(&stage, n).await, (0..=n).collect::<Vec<_>>());
    }
    let (status, body) = refusals(CHAT).swap_remove(0);
    stage.upstream.then(RawResponse::refuses(status, &body));
    let mut before = questions(&stage, 12).await;
    assert!(before[0] > 3, "{before:?}");
    let rows = stage.app.rows.all("SELECT refused_tokens FROM message_steps WHERE turns_left_out > 0").await;
    assert!(
        rows.len() == 1 && rows[0]["refused_tokens"].as_i64().is_some_and(|tokens| tokens > 3000),
        "{rows:?}"
    );
    // Each next process has learned nothing by itself, and the last one has other tools.
    for n in 13..18 {
        let Stage { wire, upstream, app } = stage;
        let model = upstream.model(&json!({}));
        let tools = if n == 17 { ToolRegistry::new() } else { probes(&app.ledger) };
        stage = Stage { wire, app: app.redeploy_with(tools, |config| config.model = model).await, upstream };
        let now = questions(&stage, n).await;
        assert!(now[0] >= before[0] && now.contains(&n), "{now:?} after {before:?}");
        before = now;
    }
    // The limit of the conversation is still that of the refusal.
    assert!(before.len() < 12, "{before:?}");
}

#[tokio::test]
async fn on_postgres_two_processes_send_the_same_window() {
    let database = postgres().await;
    let stage =
        Stage::with_config(CHAT, json!({}), |config| config.database.url = database.clone().into()).await;
    let model = stage.upstream.model(&json!({}));
    let other = Embedded::with(|config| {
        config.database.url = database.clone().into();
        config.model = model;
    })
    .await;
    let clients = [&stage.app.client, &other.client];
    let thread = clients[0].thread().await;
    let (status, body) = refusals(CHAT).swap_remove(0);
    let mut sent = Vec::new();
    for n in 0..24 {
        if n == 12 {
            stage.upstream.then(RawResponse::refuses(status, &body));
        }
        // The first process alone is refused. After that they take turns.
        let client = clients[if n <= 12 { 0 } else { n % 2 }];
        sent.push(ask(&stage.upstream, client, &thread, n).await);
    }
    for pair in sent[12..].windows(2) {
        assert!(pair[1][0] >= pair[0][0], "{sent:?}");
        assert!(pair[1].len() < 12, "{sent:?}");
    }
    // One request was refused, and no process sent a longer one later.
    assert_eq!(stage.upstream.requests().len(), 25);
}
