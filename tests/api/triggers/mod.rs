//! The bodies that pages of AI SDK 5 to 7 post, and their meaning: a new message, an edit, a regenerate, a
//! continuation.

mod continuations;
mod during_turn;
mod editing;
mod new_messages;
mod regenerating;

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::ui::{UiTurn, ui_assistant, ui_submit, ui_user};
use holdpoint_testkit::{Embedded, JsonFields};
use serde_json::{Value, json};

/// The majors whose bodies are recorded here.
const MAJORS: [&str; 3] = ["v5", "v6", "v7"];

/// The page's name for its thread.
const CHAT: &str = "chat-1";

/// A thread with a conversation of a page.
struct Talk {
    thread: String,
    /// The messages that the page holds: user messages `u1`, `u2` and so on, with the answers `A1`, `A2`.
    held: Vec<Value>,
    /// The ids of the answers.
    answers: Vec<String>,
}

async fn talked(app: &Embedded, words: &[&str]) -> Talk {
    talked_in(app, CHAT, words).await
}

async fn talked_in(app: &Embedded, chat: &str, words: &[&str]) -> Talk {
    let (mut held, mut answers) = (Vec::new(), Vec::new());
    for (n, words) in (1..).zip(words) {
        held.push(ui_user(&format!("u{n}"), words));
        app.scene.answers(&format!("A{n}"));
        let turn = app.client.ui_turn(&ui_submit(chat, &held)).await;
        assert_eq!(turn.text(), format!("A{n}"), "{}", turn.raw);
        held.push(answer(&turn));
        answers.push(turn.message_id().to_owned());
    }
    Talk { thread: thread_named(app, chat).await, held, answers }
}

/// A thread in which the model asked for a `pay` of 10 after the message `u1` with these words, and the
/// call's id.
async fn held(app: &Embedded, words: &str) -> (Talk, String) {
    app.scene.calls(&[holdpoint_testkit::call("p-10", "pay", &json!({ "note": "10" }))]);
    let requested = ui_user("u1", words);
    let turn = app.client.ui_turn(&ui_submit(CHAT, std::slice::from_ref(&requested))).await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let card = json!([{ "type": "step-start" }, { "type": "tool-pay", "toolCallId": id,
        "state": "approval-requested", "input": { "note": "10" }, "approval": { "id": id } }]);
    let message = turn.message_id().to_owned();
    let held = vec![requested, ui_assistant(&message, &card)];
    (Talk { thread: thread_named(app, CHAT).await, held, answers: vec![message] }, id.clone())
}

/// The id of the thread with this name.
async fn thread_named(app: &Embedded, chat: &str) -> String {
    let threads = app.client.get("/threads").await.body;
    let mut all = threads.list("results").iter();
    let found = all.find(|thread| thread["client_id"] == chat).unwrap_or_else(|| panic!("{threads}"));
    found.text("thread_id").to_owned()
}

/// An answer in the form in which a page holds it.
fn answer(turn: &UiTurn) -> Value {
    let words = json!({ "type": "text", "text": turn.text(), "state": "done" });
    ui_assistant(turn.message_id(), &json!([{ "type": "step-start" }, words]))
}

fn regenerate(messages: &[Value]) -> Value {
    json!({ "id": CHAT, "messages": messages, "trigger": "regenerate-message" })
}

fn regenerate_at(messages: &[Value], message: &str) -> Value {
    json!({ "id": CHAT, "messages": messages, "trigger": "regenerate-message", "messageId": message })
}

/// The page's names of the user messages in the thread.
async fn names(app: &Embedded, thread: &str) -> Vec<Value> {
    let messages = app.client.messages(thread).await;
    let requested = messages.iter().filter(|message| message["role"] == "user");
    requested.map(|message| message["client_id"].clone()).collect()
}

/// The number of superseded messages.
async fn cut(app: &Embedded) -> i64 {
    app.rows.count("messages WHERE superseded_at IS NOT NULL").await
}

/// Asserts the texts of the last request to the model: those of users, its own and those of tools.
fn assert_last_request(app: &Embedded, expected: &[&str]) {
    let requests = app.scene.requests();
    let sent = requests.last().unwrap().messages.iter().map(|message| match message {
        ModelMessage::User(text) | ModelMessage::Assistant { text, .. } | ModelMessage::Tool { text, .. } => {
            text.as_str()
        }
    });
    assert_eq!(sent.collect::<Vec<_>>(), expected);
}
