//! An approval handler whose questions a test answers.

use crate::{Embedded, JsonFields, Turn, call};
use futures::FutureExt;
use holdpoint::handlers::{ApprovalHandler, ApprovalRequest, BoxFuture, HandlerAnswer, HandlerError};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};

/// A handler whose questions a test answers.
pub struct Desk {
    pub name: String,
    pub requested: mpsc::UnboundedSender<Question>,
}

/// The questions that the server asked the desk.
#[derive(Clone)]
pub struct Questions(Arc<Mutex<mpsc::UnboundedReceiver<Question>>>);

/// One question, while the server waits for its answer.
pub struct Question {
    pub request: ApprovalRequest,
    pub answer: oneshot::Sender<Result<HandlerAnswer, HandlerError>>,
}

pub fn desk() -> (Desk, Questions) {
    named("desk")
}

pub fn named(name: &str) -> (Desk, Questions) {
    let (requested, questions) = mpsc::unbounded_channel();
    (Desk { name: name.to_owned(), requested }, Questions(Arc::new(Mutex::new(questions))))
}

impl ApprovalHandler for Desk {
    fn name(&self) -> &str {
        &self.name
    }

    fn ask(&self, request: ApprovalRequest) -> BoxFuture<'_, Result<HandlerAnswer, HandlerError>> {
        async move {
            let (answer, answered) = oneshot::channel();
            self.requested.send(Question { request, answer }).map_err(|_| "nobody is at the desk")?;
            answered.await?
        }
        .boxed()
    }
}

impl Questions {
    pub async fn next(&self) -> Question {
        let next = async { self.0.lock().await.recv().await.unwrap() };
        tokio::time::timeout(std::time::Duration::from_secs(30), next).await.expect("the handler is asked")
    }

    /// Whether no question is open.
    pub async fn is_empty(&self) -> bool {
        self.0.lock().await.is_empty()
    }

    /// Gives this answer to the next question, and returns the id of its call.
    pub async fn answer(&self, answer: HandlerAnswer) -> String {
        let question = self.next().await;
        let id = question.id();
        question.answer(answer);
        id
    }
}

impl Question {
    pub fn id(&self) -> String {
        self.request.tool_call_id.to_string()
    }

    pub fn note(&self) -> &str {
        self.request.input.text("note")
    }

    pub fn answer(self, answer: HandlerAnswer) {
        self.answer.send(Ok(answer)).expect("the server waits for the answer");
    }

    /// Completes once the server has dropped the question.
    pub async fn until_over(mut self) {
        let over = self.answer.closed();
        tokio::time::timeout(std::time::Duration::from_secs(30), over).await.expect("the question is over");
    }
}

/// A server with a desk.
pub async fn office() -> (Embedded, Questions) {
    let (desk, questions) = desk();
    (Embedded::with_handler(desk, |_| {}).await, questions)
}

/// Has the model call `pay` with these notes in one step, and say `then` after the outcomes.
pub fn pays(app: &Embedded, notes: &[&str], then: &str) {
    let calls: Vec<_> = notes.iter().map(|note| call(note, "pay", &json!({ "note": note }))).collect();
    app.scene.calls(&calls).answers(then);
}

/// Runs a turn with one payment, to which the desk gives this answer. Returns the turn and the call.
pub async fn answered(app: &Embedded, questions: &Questions, answer: HandlerAnswer) -> (Turn, Value) {
    let thread = app.client.thread().await;
    pays(app, &["10"], "I see.");
    let (turn, id) = tokio::join!(app.client.send_message(&thread, "pay"), questions.answer(answer));
    (turn, app.client.call(&id).await)
}

/// The `validated` values of the `8:` lines, in order.
pub fn words(turn: &Turn) -> Vec<&str> {
    let reported = turn.all('8').into_iter().flat_map(|entries| entries.as_array().unwrap());
    reported.map(|entry| entry.text("validated")).collect()
}

/// The actor, the surface and the verdict of a call's decision.
pub fn decided(call: &Value) -> [&str; 3] {
    ["by", "surface", "decision"].map(|key| call["decision"][key].as_str().unwrap_or_default())
}
