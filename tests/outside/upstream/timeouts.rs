//! Slow models: the timeouts, and which bytes count as a sign of life.

use super::{Stage, on_each_wire};
use holdpoint_testkit::{RawResponse, ResponseAction, ResponseState, ScriptedAnswer, Wire};
use serde_json::json;
use std::time::Duration;

/// The timeout for a silent server, and a shorter interval.
const PATIENCE: &str = "2s";
const SHORTER: Duration = Duration::from_millis(300);
/// This many of the shorter intervals exceed the timeout.
const TIMES: usize = 9;

async fn a_model_that_never_starts_times_out(wire: Wire) {
    let stage = Stage::with(wire, json!({ "first_byte_timeout": PATIENCE })).await;
    for reply in [
        RawResponse::without_a_byte(ResponseAction::Hang),
        RawResponse::streams(wire, vec![ResponseAction::Hang]),
    ] {
        stage.upstream.then(reply);
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_timeout", "").await;
        stage.upstream.wait_for_state(ResponseState::Left).await;
        stage.upstream.words("Better.");
        assert_eq!(stage.app.client.resume(&thread).await.text(), "Better.");
        stage.next_turn_works(&thread).await;
    }
}
on_each_wire!(side by side a_model_that_never_starts_times_out);

async fn a_model_that_stalls_times_out_and_its_text_is_kept(wire: Wire) {
    let stage = Stage::with(wire, json!({ "idle_timeout": PATIENCE })).await;
    let words = ScriptedAnswer::on(wire).words(&["So far."]);
    let arguments = ScriptedAnswer::on(wire).words(&["So far."]).begin_call("a", "pay", &[r#"{"note":"#]);
    let rows = if wire.facts().writes_arguments { vec![words, arguments] } else { vec![words] };
    for answer in rows {
        let acts = vec![ResponseAction::Send(answer.text().into_bytes()), ResponseAction::Hang];
        stage.upstream.then(RawResponse::streams(wire, acts));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_timeout", "So far.").await;
        stage.upstream.wait_for_state(ResponseState::Left).await;
        stage.upstream.words("Better.");
        assert_eq!(stage.app.client.resume(&thread).await.text(), "Better.");
        let request = stage.next_turn_works(&thread).await;
        assert_eq!(wire.calls(&request), []);
    }
    stage.nothing_ran();
}
on_each_wire!(side by side a_model_that_stalls_times_out_and_its_text_is_kept);

async fn any_sign_of_life_extends_the_timeout(wire: Wire) {
    let stage = Stage::with(wire, json!({ "first_byte_timeout": PATIENCE, "idle_timeout": PATIENCE })).await;
    let answer = ScriptedAnswer::on(wire).words(&["Slowly, ", "but surely."]).end();
    let (begin, end) = answer.split("but surely.");
    let signs = ResponseAction::Every(SHORTER, TIMES, wire.facts().sign_of_life);
    let acts = [signs.clone(), ResponseAction::Send(begin), signs, ResponseAction::Send(end)];
    stage.upstream.then(RawResponse::streams(wire, acts.to_vec()));
    let (_, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "Slowly, but surely.", "{}", turn.raw);
    stage.is(&turn, "completed").await;
}
on_each_wire!(side by side any_sign_of_life_extends_the_timeout);

async fn a_model_that_starts_late_is_not_treated_as_stalled(wire: Wire) {
    let stage = Stage::with(wire, json!({ "first_byte_timeout": "30s", "idle_timeout": PATIENCE })).await;
    let whole = ScriptedAnswer::words_on(wire, "At last.").text();
    let acts = vec![ResponseAction::Every(SHORTER, TIMES, ""), ResponseAction::Send(whole.into())];
    stage.upstream.then(RawResponse::streams(wire, acts));
    let (_, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "At last.", "{}", turn.raw);
    stage.is(&turn, "completed").await;
}
on_each_wire!(side by side a_model_that_starts_late_is_not_treated_as_stalled);

async fn signs_of_life_without_content_time_out(wire: Wire) {
    let stage = Stage::with(wire, json!({ "idle_timeout": "1s" })).await;
    let signs = ResponseAction::Every(Duration::from_millis(50), 10_000, wire.facts().sign_of_life);
    for (answer, kept) in
        [(ScriptedAnswer::on(wire), ""), (ScriptedAnswer::on(wire).words(&["So far."]), "So far.")]
    {
        stage.upstream.then(RawResponse::streams(
            wire,
            vec![ResponseAction::Send(answer.text().into_bytes()), signs.clone()],
        ));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_timeout", kept).await;
        stage.upstream.wait_for_state(ResponseState::Left).await;
        stage.next_turn_works(&thread).await;
    }
}
on_each_wire!(side by side signs_of_life_without_content_time_out);

async fn a_reason_before_the_end_of_the_answer_ends_nothing(wire: Wire) {
    let Some(early) = wire.facts().early_reason else { return };
    let stage = Stage::on(wire).await;
    // Once before any text, and once in the middle of it.
    let (begin, end) =
        ScriptedAnswer::on(wire).words(&["Slowly, ", "but surely."]).end().split("but surely.");
    let signs = ResponseAction::Every(SHORTER, TIMES, wire.facts().sign_of_life);
    let early = ResponseAction::Send(wire.frame(early).into_bytes());
    let acts = vec![
        early.clone(),
        signs.clone(),
        ResponseAction::Send(begin),
        early,
        signs,
        ResponseAction::Send(end),
    ];
    stage.upstream.then(RawResponse::streams(wire, acts));
    let (_, turn) = stage.run_turn().await;
    assert_eq!(turn.text(), "Slowly, but surely.", "{}", turn.raw);
    stage.is(&turn, "completed").await;
}
on_each_wire!(side by side a_reason_before_the_end_of_the_answer_ends_nothing);
