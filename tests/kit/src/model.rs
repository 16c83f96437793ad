//! A scripted model, which records its requests.

use super::valid_question;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use holdpoint::llm::FinishReason;
use holdpoint::llm::Usage;
use holdpoint::llm::{LanguageModel, ModelError, ModelEvent, ModelRequest};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;

/// The events of one step of a model, or its failure.
pub(crate) type Step = Vec<Result<ModelEvent, String>>;

/// The scripted steps of a model, in order, and the requests it received.
#[derive(Debug, Clone, Default)]
pub struct Scene {
    steps: Arc<Mutex<VecDeque<Step>>>,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
    gate: Arc<Mutex<Option<Arc<Semaphore>>>>,
}

/// One call of a step: provider's id, tool, arguments.
pub fn call(id: &str, tool: &str, arguments: &Value) -> (String, String, String) {
    (id.to_owned(), tool.to_owned(), arguments.to_string())
}

/// A step with text only.
pub(crate) fn text(words: &str) -> Step {
    vec![Ok(ModelEvent::Text(words.to_owned())), Ok(end(FinishReason::Stop))]
}

fn end(reason: FinishReason) -> ModelEvent {
    let usage = Some(Usage { input_tokens: 10, output_tokens: 5 });
    ModelEvent::Finished { reason, usage, provider_state: None }
}

impl Scene {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends this step to the script.
    pub fn then(&self, step: Step) -> &Self {
        self.steps.lock().unwrap().push_back(step);
        self
    }

    pub fn answers(&self, words: &str) -> &Self {
        self.then(text(words))
    }

    /// Appends a step with these calls to the script.
    pub fn calls(&self, calls: &[(String, String, String)]) -> &Self {
        let mut step = Vec::new();
        for (index, (id, tool, arguments)) in calls.iter().enumerate() {
            step.push(Ok(ModelEvent::CallStarted {
                index,
                provider_call_id: id.clone(),
                tool_name: tool.clone(),
            }));
            step.push(Ok(ModelEvent::CallArguments { index, delta: arguments.clone() }));
            step.push(Ok(ModelEvent::CallFinished { index }));
        }
        step.push(Ok(end(FinishReason::ToolCalls)));
        self.then(step)
    }

    /// Makes each later event of a step wait for its own permit.
    pub fn gate(&self) -> Arc<Semaphore> {
        self.gate.lock().unwrap().get_or_insert_with(|| Arc::new(Semaphore::new(0))).clone()
    }

    /// Drops the remaining steps of the script.
    pub fn forget(&self) {
        self.steps.lock().unwrap().clear();
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests of one conversation, each of which has to extend the previous one and repeat it word for
    /// word.
    pub fn growing_requests(&self) -> Vec<ModelRequest> {
        let requests = self.requests();
        for pair in requests.windows(2) {
            let [before, after] = pair else { panic!() };
            let sent = before.messages.len();
            assert!(after.messages.len() >= sent, "{before:#?} became {after:#?}");
            assert_eq!(after.messages[..sent], before.messages[..], "words that were sent have changed");
        }
        requests
    }
}

impl LanguageModel for Scene {
    fn id(&self) -> &str {
        "scene"
    }

    fn provider(&self) -> &str {
        "test"
    }

    fn stream(&self, request: &ModelRequest) -> BoxStream<'static, Result<ModelEvent, ModelError>> {
        valid_question(request).unwrap_or_else(|wrong| panic!("{wrong}: {request:#?}"));
        self.requests.lock().unwrap().push(request.clone());
        let step = self.steps.lock().unwrap().pop_front();
        let step = step.unwrap_or_else(|| vec![Err("the scene is over".to_owned())]);
        let gate = self.gate.lock().unwrap().clone();
        stream::iter(step)
            .then(move |event| {
                let gate = gate.clone();
                async move {
                    if let Some(gate) = gate {
                        gate.acquire().await.unwrap().forget();
                    }
                    event.map_err(ModelError::Upstream)
                }
            })
            .boxed()
    }
}
