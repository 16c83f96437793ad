//! Cancellation: `POST /runs/{id}/cancel` closes the connection to the model's server. A client that
//! disconnects does not.

use super::{Listener, Stage, on_each_wire};
use holdpoint_testkit::{
    Answer, DisconnectKind, Leaver, RawResponse, ResponseAction, ResponseState, ScriptedAnswer, Turn, Wire,
    eventually,
};
use serde_json::{Value, json};

impl Stage {
    async fn cancels(&self, listener: &Listener) -> Answer {
        self.app.client.post(&format!("/runs/{}/cancel", listener.run_id()), &Value::Null).await
    }

    /// Cancels the run. Asserts that its stream ends without an error and that the connection to the model's
    /// server closes at once.
    pub(super) async fn stops(&self, listener: Listener) -> Turn {
        let cancelled = self.cancels(&listener).await;
        cancelled.has(200, "status", "cancelled");
        self.upstream.wait_for_state(ResponseState::Left).await;
        let turn = listener.rest().await;
        self.is(&turn, "cancelled").await;
        assert_eq!(turn.one('d')["finishReason"], "other");
        turn
    }
}

/// A reply that sends this much and then hangs.
fn begins(answer: &ScriptedAnswer) -> RawResponse {
    RawResponse::streams(
        answer.wire,
        vec![ResponseAction::Send(answer.text().into_bytes()), ResponseAction::Hang],
    )
}

async fn cancelling_in_mid_text_closes_the_connection(wire: Wire) {
    let stage = Stage::on(wire).await;
    stage.upstream.then(begins(&ScriptedAnswer::on(wire).words(&["So far."])));
    let thread = stage.app.client.thread().await;
    let mut listener = stage.listens(&thread).await;
    listener.receives("So far.").await;
    let turn = stage.stops(listener).await;
    assert_eq!((turn.codes().as_str(), turn.text().as_str()), ("f0d", "So far."));
    let request = stage.next_turn_works(&thread).await;
    assert!(!request.to_string().contains("So far."), "{request}");
}
on_each_wire!(cancelling_in_mid_text_closes_the_connection);

async fn cancelling_before_the_first_byte_closes_the_connection(wire: Wire) {
    let stage = Stage::on(wire).await;
    let thread = stage.app.client.thread().await;
    for reply in [
        RawResponse::without_a_byte(ResponseAction::Hang),
        RawResponse::streams(wire, vec![ResponseAction::Hang]),
    ] {
        stage.upstream.then(reply);
        let requested = stage.upstream.requests().len();
        let listener = stage.listens(&thread).await;
        stage.upstream.wait_for_requests(requested + 1).await;
        let turn = stage.stops(listener).await;
        assert_eq!(turn.codes(), "fd");
        stage.next_turn_works(&thread).await;
    }
}
on_each_wire!(cancelling_before_the_first_byte_closes_the_connection);

async fn cancelling_in_mid_arguments_holds_nothing(wire: Wire) {
    let stage = Stage::on(wire).await;
    stage.upstream.then(begins(&ScriptedAnswer::on(wire).begin_call("a", "pay", &[r#"{"note":"#])));
    let thread = stage.app.client.thread().await;
    let mut listener = stage.listens(&thread).await;
    listener.receives("c:{").await;
    let turn = stage.stops(listener).await;
    assert_eq!(turn.codes(), "fbcd");
    assert_eq!(stage.calls_of(&thread).await, [] as [Value; 0]);
    let request = stage.next_turn_works(&thread).await;
    assert_eq!(wire.calls(&request), []);
    stage.nothing_ran();
}
on_each_wire!(side by side cancelling_in_mid_arguments_holds_nothing if writes_arguments);

async fn cancelling_between_two_attempts_ends_the_retries(wire: Wire) {
    let stage = Stage::on(wire).await;
    stage.upstream.then(RawResponse::refuses(503, "{}").with("retry-after", "50"));
    let thread = stage.app.client.thread().await;
    let listener = stage.listens(&thread).await;
    stage.upstream.wait_for_requests(1).await;
    stage.upstream.wait_for_state(ResponseState::Done).await;
    let cancelled = stage.cancels(&listener).await;
    cancelled.has(200, "status", "cancelled");
    let turn = listener.rest().await;
    stage.is(&turn, "cancelled").await;
    assert_eq!(stage.upstream.requests().len(), 1);
    stage.next_turn_works(&thread).await;
}
on_each_wire!(cancelling_between_two_attempts_ends_the_retries);

async fn a_client_that_disconnects_does_not_close_the_connection_to_the_model(wire: Wire) {
    let stage = Stage::on(wire).await;
    let answer = ScriptedAnswer::on(wire).words(&["So far,", " so good."]).end();
    let (begin, end) = answer.split(" so good.");
    for how in DisconnectKind::ALL {
        let acts =
            [ResponseAction::Send(begin.clone()), ResponseAction::Wait, ResponseAction::Send(end.clone())];
        stage.upstream.then(RawResponse::streams(wire, acts.to_vec()));
        let thread = stage.app.client.thread().await;
        let path = format!("/qa/chat_streamed/{thread}");
        let mut client = Leaver::sends(&stage.app.client, how, &path, &json!({ "content": "go" })).await;
        client.receives("So far,").await;
        let _connection = client.leaves().await;
        // After ten requests of other clients, the server has handled the disconnect.
        for _ in 0..10 {
            let answer = stage.app.client.messages(&thread).await.pop().unwrap();
            assert_eq!(answer["status"], "streaming", "{how:?}");
        }
        assert_eq!(stage.upstream.requests().last().unwrap().state, ResponseState::Open, "{how:?}");
        stage.upstream.release.add_permits(1);
        let whole = async || {
            let answer = stage.app.client.messages(&thread).await.pop();
            answer.filter(|answer| answer["status"] == "complete")
        };
        let whole = eventually("the turn is completed", whole).await;
        assert_eq!(super::text(&whole), "So far, so good.", "{how:?}");
        stage.next_turn_works(&thread).await;
    }
}
on_each_wire!(a_client_that_disconnects_does_not_close_the_connection_to_the_model);
