//! What pages of AI SDK 5 to 7 post, and what it means: a new message, an edit, another answer, going on.

mod editing;
mod going_on;
mod regenerating;
mod saying;
mod under_way;

use crate::support::Embedded;
use crate::support::ui::{UiTurn, ui_assistant, ui_submit, ui_user};
use holdpoint::llm::ModelMessage;
use serde_json::{Value, json};

/// The majors whose bodies are recorded here.
const MAJORS: [&str; 3] = ["v5", "v6", "v7"];

/// What a page calls its thread.
const CHAT: &str = "chat-1";

/// A thread in which a page has talked.
struct Talk {
    thread: String,
    /// What the page holds: user messages `u1`, `u2` and so on, answered `A1`, `A2`.
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
        app.scene.says(&format!("A{n}"));
        let turn = app.client.ui_turn(&ui_submit(chat, &held)).await;
        assert_eq!(turn.text(), format!("A{n}"), "{}", turn.raw);
        held.push(answer(&turn));
        answers.push(turn.message_id().to_owned());
    }
    Talk { thread: thread_named(app, chat).await, held, answers }
}

/// A thread in which the model asked, to this message by the name of `u1`, for a `pay` of 10; and the call's id.
async fn held(app: &Embedded, words: &str) -> (Talk, String) {
    app.scene.calls(&[crate::support::call("p-10", "pay", &json!({ "note": "10" }))]);
    let asked = ui_user("u1", words);
    let turn = app.client.ui_turn(&ui_submit(CHAT, std::slice::from_ref(&asked))).await;
    let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
    let card = json!([{ "type": "step-start" }, { "type": "tool-pay", "toolCallId": id,
        "state": "approval-requested", "input": { "note": "10" }, "approval": { "id": id } }]);
    let message = turn.message_id().to_owned();
    let held = vec![asked, ui_assistant(&message, &card)];
    (Talk { thread: thread_named(app, CHAT).await, held, answers: vec![message] }, id.clone())
}

/// The id of the thread that goes by this name.
async fn thread_named(app: &Embedded, chat: &str) -> String {
    let threads = app.client.get("/threads").await.body;
    let mut all = threads["results"].as_array().unwrap().iter();
    let found = all.find(|thread| thread["client_id"] == chat).unwrap_or_else(|| panic!("{threads}"));
    found["thread_id"].as_str().unwrap().to_owned()
}

/// What a page holds of an answer.
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

/// The page's names of the thread's user messages as they stand.
async fn names(app: &Embedded, thread: &str) -> Vec<Value> {
    let messages = app.client.messages(thread).await;
    let asked = messages.iter().filter(|message| message["role"] == "user");
    asked.map(|message| message["client_id"].clone()).collect()
}

/// How many messages were cut off.
async fn cut(app: &Embedded) -> i64 {
    app.rows.count("messages WHERE status = 'superseded'").await
}

/// The model was asked last with these words: users', its own and those of answers of tools.
fn assert_last_told(app: &Embedded, expected: &[&str]) {
    let requests = app.scene.requests();
    let told = requests.last().unwrap().messages.iter().map(|message| match message {
        ModelMessage::User(text) | ModelMessage::Assistant { text, .. } | ModelMessage::Tool { text, .. } => {
            text.as_str()
        }
    });
    assert_eq!(told.collect::<Vec<_>>(), expected);
}
