//! Slow, broken or hostile model servers, on every wire: the person gets a clear answer, the model's context
//! stays true, no unseen call runs, and the thread continues.

mod arguments;
mod bytes;
mod calls;
mod cancelling;
mod context_full;
mod holds;
mod key;
mod malformed;
mod odd_frames;
mod places;
mod retries;
mod returned;
mod schemas;
mod sources;
mod stock_servers;
mod strict;
mod timeouts;

use holdpoint::config::Config;
use holdpoint_testkit::{BadServer, Embedded, JsonFields, ScriptedAnswer, Turn, Wire};
use serde_json::{Value, json};

pub(crate) use holdpoint_testkit::wires::on_each_wire;

/// A server and the model server that it asks.
struct Stage {
    wire: Wire,
    upstream: BadServer,
    app: Embedded,
}

impl Stage {
    async fn on(wire: Wire) -> Self {
        Self::with(wire, json!({})).await
    }

    /// A stage with these keys of `[model]`.
    async fn with(wire: Wire, model: Value) -> Self {
        Self::with_config(wire, model, |_| {}).await
    }

    async fn with_config(wire: Wire, model: Value, change: impl FnOnce(&mut Config)) -> Self {
        let upstream = BadServer::start(wire).await;
        let app = Embedded::with(|config| {
            config.model = upstream.model(&model);
            change(config);
        });
        Self { wire, app: app.await, upstream }
    }

    /// Starts a new thread with one turn.
    async fn run_turn(&self) -> (String, Turn) {
        let thread = self.app.client.thread().await;
        let turn = self.run_turn_in(&thread).await;
        (thread, turn)
    }

    /// Runs a turn in an existing thread, which shows that the earlier turns did no harm.
    async fn run_turn_in(&self, thread: &str) -> Turn {
        let turn = self.app.client.send_message(thread, "go").await;
        assert_eq!(turn.status, 200, "{}", turn.raw);
        turn
    }

    /// Starts a turn and reads its stream.
    async fn listens(&self, thread: &str) -> Listener {
        let url = self.app.client.url(&format!("/qa/chat_streamed/{thread}"));
        let request = self.app.client.http.post(url).json(&json!({ "content": "go" }));
        Listener { response: request.send().await.unwrap(), raw: Vec::new() }
    }

    async fn run(&self, turn: &Turn) -> Value {
        let path = format!("/runs/{}", turn.headers["x-run-id"].to_str().unwrap());
        self.app.client.get(&path).await.body
    }

    /// Asserts that the turn ended without an error and that its run has this status, `completed` or
    /// `waiting`.
    async fn is(&self, turn: &Turn, status: &str) {
        assert_eq!(turn.all('3'), [] as [&Value; 0], "{:?}: {}", self.wire, turn.raw);
        assert_eq!(self.run(turn).await["status"], status, "{:?}: {}", self.wire, turn.raw);
    }

    /// Asserts that the turn failed with this code, reported once in the stream, in its run and by the status
    /// of its message; that these words are stored; and that the message has no call.
    async fn failed(&self, thread: &str, turn: &Turn, code: &str, words: &str) {
        let error = turn.error();
        assert!(error.starts_with(&format!("{code}: ")), "{:?}: {}", self.wire, turn.raw);
        assert_eq!(turn.lines.last().unwrap().0, '3', "{}", turn.raw);
        let run = self.run(turn).await;
        assert_eq!((&run["status"], &run["error"]["code"]), (&json!("failed"), &json!(code)));
        assert_eq!(turn.text(), words);
        let answer = self.app.client.messages(thread).await.pop().unwrap();
        assert_eq!(answer["status"], "interrupted");
        assert_eq!(text(&answer), words);
        let parts = answer.list("parts");
        assert!(!parts.iter().any(|part| part["type"] == "tool_call"), "{answer}");
    }

    /// Every call of the thread, oldest first.
    async fn calls_of(&self, thread: &str) -> Vec<Value> {
        let messages = self.app.client.messages(thread).await;
        let parts = messages.iter().flat_map(|message| message.list("parts"));
        let calls = parts.filter(|part| part["type"] == "tool_call").map(|part| part["tool_call"].clone());
        calls.collect()
    }

    /// Asserts that the next turn works, and returns its model request.
    async fn next_turn_works(&self, thread: &str) -> Value {
        self.upstream.words("Still here.");
        let turn = self.app.client.send_message(thread, "and now?").await;
        assert_eq!(turn.text(), "Still here.", "{}", turn.raw);
        self.is(&turn, "completed").await;
        self.upstream.last()
    }

    /// Has the model make one call, which is held. Returns the thread, the turn and the call id.
    async fn held(&self, answer: &ScriptedAnswer) -> (String, Turn, String) {
        self.upstream.answers(answer);
        let (thread, turn) = self.run_turn().await;
        self.is(&turn, "waiting").await;
        let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
        let id = id.clone();
        (thread, turn, id)
    }

    /// Asserts that no tool ran.
    fn nothing_ran(&self) {
        assert_eq!(self.app.ledger.lines(), Vec::<String>::new());
    }
}

/// A turn that is read while it is streamed.
struct Listener {
    response: reqwest::Response,
    raw: Vec<u8>,
}

impl Listener {
    async fn receives(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.raw).contains(text) {
            let chunk = self.response.chunk().await.unwrap();
            self.raw.extend(chunk.unwrap_or_else(|| panic!("the turn ended before {text:?}")));
        }
    }

    fn run_id(&self) -> String {
        self.response.headers()["x-run-id"].to_str().unwrap().to_owned()
    }

    async fn rest(mut self) -> Turn {
        while let Some(chunk) = self.response.chunk().await.unwrap() {
            self.raw.extend(chunk);
        }
        let headers = self.response.headers().clone();
        Turn::of(self.response.status().as_u16(), headers, String::from_utf8(self.raw).unwrap())
    }
}

fn text(message: &Value) -> String {
    let parts = message.list("parts").iter();
    parts.filter(|part| part["type"] == "text").map(|part| part.text("text")).collect()
}
