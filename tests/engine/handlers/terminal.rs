//! The terminal handler, with a test at the keyboard.

use super::{pays, words};
use futures::FutureExt;
use futures::future::BoxFuture;
use holdpoint::config::Config;
use holdpoint::handlers::Terminal;
use holdpoint::tools::{DynTool, Input, Permit, ToolError, ToolRegistry, ToolSpec};
use holdpoint_testkit::{Embedded, JsonFields, eventually};
use serde_json::{Value, json};
use std::io::{self, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The typed lines. The end of the channel is the end of the input.
struct Keyboard(Receiver<String>);

impl Read for Keyboard {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let line = self.0.recv().unwrap_or_default();
        into[..line.len()].copy_from_slice(line.as_bytes());
        Ok(line.len())
    }
}

/// The text on the screen.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Screen {
    fn shown(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Completes once the text appears this often.
    async fn shows(&self, text: &str, times: usize) {
        eventually(text, async || (self.shown().matches(text).count() >= times).then_some(())).await;
    }
}

const QUESTION: &str = "[l]ater? ";

async fn sits(change: impl FnOnce(&mut Config)) -> (Embedded, Sender<String>, Screen) {
    let (typed, lines) = channel();
    let screen = Screen::default();
    let terminal = Terminal::between(BufReader::new(Keyboard(lines)), screen.clone());
    (Embedded::with_handler(terminal, change).await, typed, screen)
}

#[tokio::test]
async fn the_terminal_shows_the_call_and_takes_the_decision() {
    let (app, typed, screen) = sits(|_| {}).await;
    let thread = app.client.thread().await;
    for (line, word) in
        [("y", "approved"), ("n it is too much", "rejected"), ("c not now", "cancelled"), ("s", "approved")]
    {
        pays(&app, &["1\u{1b}[2K0\u{202e}\u{61c}\u{e0041}\u{fe0f}\u{ad}é"], "I see.");
        // The terminal repeats its question after an unknown answer.
        typed.send("what?\n".to_owned()).unwrap();
        typed.send(format!("{line}\n")).unwrap();
        let turn = app.client.send_message(&thread, "pay").await;
        assert_eq!((words(&turn), turn.text().as_str()), (vec!["pending", word], "I see."), "{line}");
    }
    let shown = screen.shown();
    assert_eq!(shown.matches(QUESTION).count(), 8, "{shown}");
    assert!(shown.contains("pay (High risk) wants to run with"), "{shown}");
    assert!(shown.contains(r#"{"note":"1\u001b[2K0\u202e\u061c\udb40\udc41\ufe0f\u00adé"}"#), "{shown}");
    let because = app.rows.all("SELECT reason FROM decisions WHERE reason IS NOT NULL ORDER BY at").await;
    assert_eq!(because, [json!({ "reason": "it is too much" }), json!({ "reason": "not now" })]);
}

/// A tool with a constant, which it returns with its inputs.
struct Account;

impl DynTool for Account {
    fn spec(&self) -> ToolSpec {
        let schema = json!({ "type": "object", "properties": { "note": { "type": "string" } } });
        let constants = Input::from_iter([("account".to_owned(), json!("ac\u{202e}me"))]);
        ToolSpec { constants, ..ToolSpec::unclassified("pay", "Pays.", schema) }
    }

    fn execute(&self, permit: Permit) -> BoxFuture<'_, Result<Value, ToolError>> {
        let mut output = permit.input().clone();
        output.extend(self.spec().constants);
        async { Ok(Value::Object(output)) }.boxed()
    }
}

#[tokio::test]
async fn the_terminal_shows_the_constants_of_a_tool() {
    let (typed, lines) = channel();
    let screen = Screen::default();
    let terminal = Terminal::between(BufReader::new(Keyboard(lines)), screen.clone());
    let mut tools = ToolRegistry::new();
    tools.register_dyn(Arc::new(Account)).unwrap();
    let app = Embedded::start().await.redeploy_with_handler(terminal, tools, |_| {}).await;
    let thread = app.client.thread().await;
    pays(&app, &["10"], "I see.");
    typed.send("y\n".to_owned()).unwrap();
    let turn = app.client.send_message(&thread, "pay").await;
    assert_eq!(words(&turn), ["pending", "approved"]);
    assert_eq!(turn.one('a')["result"], json!({ "note": "10", "account": "ac\u{202e}me" }));
    let shown = screen.shown();
    let expected =
        "wants to run with\n  {\"note\":\"10\"}\nand with the constants\n  {\"account\":\"ac\\u202eme\"}\n";
    assert!(shown.contains(expected), "{shown}");
}

#[tokio::test]
async fn the_terminal_asks_one_question_at_a_time() {
    let (app, typed, screen) = sits(|_| {}).await;
    let thread = app.client.thread().await;
    pays(&app, &["1", "2"], "All told.");
    let types = async {
        screen.shows(QUESTION, 1).await;
        typed.send("y\n".to_owned()).unwrap();
        screen.shows(QUESTION, 2).await;
        typed.send("n\n".to_owned()).unwrap();
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), types);
    let mut reported = words(&turn).split_off(2);
    reported.sort_unstable();
    assert_eq!((reported, turn.text().as_str()), (vec!["approved", "rejected"], "All told."));
}

#[tokio::test]
async fn without_input_the_calls_stay_pending() {
    let (app, typed, _) = sits(|_| {}).await;
    drop(typed);
    let (_, id) = app.held("pay", "10").await;
    assert_eq!(app.client.call(&id).await["state"], "pending");
    let (app, typed, _) = sits(|_| {}).await;
    typed.send("l\n".to_owned()).unwrap();
    let (_, id) = app.held("pay", "10").await;
    assert_eq!(app.client.approve(&id).await.body["state"], "succeeded");
}

#[tokio::test]
async fn an_answer_to_a_dropped_question_decides_nothing() {
    let (app, typed, screen) = sits(|_| {}).await;
    let thread = app.client.thread().await;
    pays(&app, &["1"], "Never.");
    let decides = async {
        screen.shows(QUESTION, 1).await;
        let pending = app.client.get("/approvals").await.body;
        let id = pending["results"][0].text("tool_call_id").to_owned();
        app.client.reject(&id).await.has_status(200);
        screen.shows("This question is over.", 1).await;
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), decides);
    assert_eq!(words(&turn), ["pending", "rejected"]);
    // The terminal shows the next question only after it has read the line for the first.
    pays(&app, &["2"], "Paid.");
    let types = async {
        typed.send("n\n".to_owned()).unwrap();
        screen.shows(QUESTION, 2).await;
        typed.send("y\n".to_owned()).unwrap();
    };
    let (turn, ()) = tokio::join!(app.client.send_message(&thread, "pay"), types);
    assert_eq!((words(&turn), turn.text().as_str()), (vec!["pending", "approved"], "Paid."));
    assert_eq!(app.ledger.lines(), ["pay 2"]);
}

#[tokio::test]
async fn an_unanswered_question_is_cancelled_after_the_timeout() {
    let hurry = |config: &mut Config| config.approval.handler_timeout = Duration::from_millis(50);
    let (app, typed, screen) = sits(hurry).await;
    let thread = app.client.thread().await;
    pays(&app, &["1"], "Nobody is there.");
    let turn = app.client.send_message(&thread, "pay").await;
    assert_eq!((words(&turn), turn.text().as_str()), (vec!["pending", "cancelled"], "Nobody is there."));
    screen.shows("This question is over.", 1).await;
    drop(typed);
}

#[tokio::test]
async fn secret_inputs_are_shown_on_the_record_before_an_approval() {
    let (typed, lines) = channel();
    let screen = Screen::default();
    let terminal = Terminal::between(BufReader::new(Keyboard(lines)), screen.clone());
    let app = Embedded::start().await;
    let tools = holdpoint_testkit::secrets::tools(&app.ledger);
    let app = app.redeploy_with_handler(terminal, tools, |_| {}).await;
    app.scene
        .calls(&[holdpoint_testkit::call("p", "login", &holdpoint_testkit::secrets::input())])
        .answers("I see.");
    for line in ["y", "r", "y"] {
        typed.send(format!("{line}\n")).unwrap();
    }
    let turn = app.client.send_message(&app.client.thread().await, "log in").await;
    assert_eq!(words(&turn), ["pending", "approved"], "{}", turn.raw);
    let shown = screen.shown();
    let (masked, opened) = shown.split_once("Reveal the secret inputs before an approval.").unwrap();
    holdpoint_testkit::secrets::assert_hidden(masked);
    assert!(holdpoint_testkit::secrets::SECRETS.iter().all(|secret| opened.contains(secret)), "{shown}");
    assert_eq!(shown.matches("[r]eveal the secret inputs, ").count(), 2, "{shown}");
    let by = app.rows.all("SELECT actor FROM events WHERE type = 'tool.inputs_revealed'").await;
    assert_eq!(by, [json!({ "actor": "handler:terminal" })]);
    assert_eq!(app.ledger.lines(), [holdpoint_testkit::secrets::input().to_string()]);
}
