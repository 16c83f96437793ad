//! Answers to held calls inside a POST, as pages of AI SDK 6 and 7 send them. Such a page posts again without
//! end until it sees the outcome of every call.

mod decided_elsewhere;
mod deciding;
mod refused;
mod waiting;

use holdpoint::llm::ModelMessage;
use holdpoint_testkit::ui::{UiTurn, ui_answer, ui_assistant, ui_submit, ui_submit_at, ui_user};
use holdpoint_testkit::{Client, Embedded, call};
use serde_json::{Value, json};

/// The chunk types of a stream that continues after one outcome with words.
const RESUMES: [&str; 8] = [
    "start",
    "tool-output-available",
    "start-step",
    "text-start",
    "text-delta",
    "text-end",
    "finish-step",
    "finish",
];

/// A page whose last message holds calls.
struct Page {
    client: Client,
    thread: String,
    /// The message with the calls.
    message: String,
    calls: Vec<String>,
}

impl Page {
    /// A page in which the model made these calls, given as tools and notes.
    async fn holding(app: &Embedded, calls: &[(&str, &str)]) -> Self {
        let thread = app.client.thread().await;
        Self::holding_in(app, thread, calls).await
    }

    async fn holding_in(app: &Embedded, thread: String, calls: &[(&str, &str)]) -> Self {
        let requested: Vec<_> =
            calls.iter().map(|(tool, note)| call(note, tool, &json!({ "note": note }))).collect();
        app.scene.calls(&requested);
        let words = calls.iter().map(|(tool, note)| format!("{tool} {note}")).collect::<Vec<_>>().join(", ");
        let name = format!("page-{words}");
        let turn = app.client.ui_turn_in(&thread, &ui_submit(&thread, &[ui_user(&name, &words)])).await;
        assert_eq!(turn.chunks.last().unwrap()["finishReason"], "tool-calls", "{}", turn.raw);
        let (message, calls) = (turn.message_id().to_owned(), turn.pending());
        Self { client: app.client.clone(), thread, message, calls }
    }

    /// The body that the page posts by itself after these answers of its user.
    fn body(&self, answers: &[Value]) -> Value {
        let messages = [ui_user("u", "words"), ui_assistant(&self.message, &json!(answers))];
        ui_submit_at(&self.thread, &messages, &self.message)
    }

    async fn posts(&self, answers: &[Value]) -> UiTurn {
        self.client.ui_turn_in(&self.thread, &self.body(answers)).await
    }

    /// Posts the same body. The response starts once the server has read the state of the thread.
    async fn begins(&self, answers: &[Value]) -> reqwest::Response {
        self.client.begin(&self.thread, &self.body(answers)).await
    }

    /// An approval of the first call.
    fn yes(&self) -> [Value; 1] {
        [yes(&self.calls[0])]
    }
}

fn yes(id: &str) -> Value {
    ui_answer(id, "any", true)
}

fn no(id: &str, reason: Option<&str>) -> Value {
    let mut answer = ui_answer(id, "any", false);
    if let Some(reason) = reason {
        answer["approval"]["reason"] = json!(reason);
    }
    answer
}

/// The stored state of the call, and the verdict, actor and surface of its decision.
async fn row(app: &Embedded, id: &str) -> [String; 4] {
    let sql = format!(
        "SELECT state, verdict, actor, surface FROM tool_calls LEFT JOIN decisions USING (tool_call_id)
         WHERE tool_call_id = '{id}'"
    );
    let rows = app.rows.all(&sql).await;
    assert_eq!(rows.len(), 1, "one decision at most: {rows:?}");
    ["state", "verdict", "actor", "surface"].map(|column| match &rows[0][column] {
        Value::Null => "-".to_owned(),
        value => value.as_str().unwrap().to_owned(),
    })
}

/// The tool results in the last request to the model.
fn sent(app: &Embedded) -> Vec<String> {
    let requests = app.scene.requests();
    let answers = requests.last().unwrap().messages.iter().filter_map(|message| match message {
        ModelMessage::Tool { text, .. } => Some(text.clone()),
        _ => None,
    });
    answers.collect()
}

/// The status of the latest run of the thread.
async fn run_status(app: &Embedded, thread: &str) -> Value {
    let sql = format!("SELECT status FROM runs WHERE thread_id = '{thread}' ORDER BY created_at DESC");
    app.rows.all(&sql).await[0]["status"].clone()
}
