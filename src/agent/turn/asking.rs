//! The request of a step to the model, and the shorter one after a refusal.

use super::{Agent, Emit, Turn};
use crate::agent::draft::Drafts;
use crate::agent::step::{self, ModelCaller, ModelOutput, Stopped};
use crate::agent::window::{self, Outline};
use holdpoint_core::message::Window;
use holdpoint_core::run::TurnError;
use holdpoint_models::ModelRequest;

impl Agent {
    /// Asks the model for step `n`.
    pub(super) async fn call_model(
        &self,
        turn: &Turn<'_>,
        n: i32,
        request: &ModelRequest,
        emit: Emit<'_>,
    ) -> (ModelOutput, Result<(), Stopped>) {
        let gate = self.executor.gate();
        let asking = ModelCaller {
            model: turn.model,
            timeouts: &self.model,
            limits: &self.limits,
            gate: &gate,
            clock: self.clock.as_ref(),
            entropy: self.entropy.as_ref(),
            heartbeat: turn.heartbeat,
            metrics: &self.executor.metrics,
        };
        let step = turn.lease.open_step(n);
        let mut drafts = Drafts::of(step, self.drafts.clone());
        step::call_model(&asking, request, &mut drafts, emit).await
    }

    /// Asks the model again with less of the conversation, once. The server refused the request as too long, and said
    /// nothing else. What the server takes then is the limit for later requests. Returns the window of the shorter request
    /// too, if the server took it.
    pub(super) async fn call_with_less(
        &self,
        turn: &Turn<'_>,
        n: i32,
        request: &mut ModelRequest,
        outline: &mut Outline,
        refused: TurnError,
        emit: Emit<'_>,
    ) -> (ModelOutput, Result<(), Stopped>, Option<Window>) {
        let overhead = window::overhead(request);
        let Some(narrowed) = outline.shrink(&mut request.messages, overhead) else {
            return (ModelOutput::default(), Err(refused.into()), None);
        };
        tracing::warn!(
            tokens = narrowed.refused,
            "a conversation was longer than the model can read; it gets less of it"
        );
        let (output, result) = self.call_model(turn, n, request, emit).await;
        if let (Ok(()), Some(tokens)) = (&result, narrowed.refused) {
            self.windows.learn(turn.model.id(), tokens);
        }
        let taken = result.is_ok().then_some(narrowed);
        (output, result, taken)
    }
}
