//! Calls with invalid or duplicate ids, names and indexes, and answers that are cut off after them.

use super::{Stage, on_each_wire};
use holdpoint_testkit::wires::chat::WIRE as CHAT;
use holdpoint_testkit::{Ending, JsonFields, ScriptedAnswer, Wire};
use serde_json::{Value, json};

fn pays(note: &str) -> String {
    json!({ "note": note }).to_string()
}

/// Two held calls of one step: the first is approved, the second is rejected, and each result belongs to its
/// own call.
async fn assert_two_calls_are_distinguished(
    stage: &Stage,
    thread: &str,
    what: &str,
    answer: &ScriptedAnswer,
) {
    let (wire, client) = (stage.wire, &stage.app.client);
    let ran = stage.app.ledger.lines().len();
    let answers =
        stage.upstream.requests().last().map_or(0, |requested| wire.tool_results(&requested.body).len());
    stage.upstream.answers(answer);
    let turn = client.send_message(thread, "pay").await;
    stage.is(&turn, "waiting").await;
    let [first, second] = &turn.pending()[..] else { panic!("{what}: {}", turn.raw) };
    let args: Vec<&Value> = turn.all('9').iter().map(|line| &line["args"]["note"]).collect();
    assert_eq!(args, ["1", "2"], "{what}");
    assert_eq!(client.approve(first).await.body["state"], "succeeded", "{what}");
    assert_eq!(client.reject(second).await.body["state"], "rejected", "{what}");
    stage.upstream.words("Done.");
    assert_eq!(client.resume(thread).await.text(), "Done.", "{what}");
    assert_eq!(stage.app.ledger.lines()[ran..], ["pay 1"], "{what}");
    let results = wire.tool_results(&stage.upstream.last());
    assert_eq!(results[answers..], [r#"{"paid":"1"}"#, "Tool execution rejected by user."], "{what}");
}

async fn calls_are_distinguished_whatever_their_ids_are(wire: Wire) {
    let stage = Stage::on(wire).await;
    let thread = stage.app.client.thread().await;
    let long = "l".repeat(300);
    let rows = [
        ("the same", ["x", "x"]),
        ("the same as in the step before", ["x", "y"]),
        ("empty", ["", ""]),
        ("one empty", ["", "z"]),
        ("long", [&*long, &*(long.clone() + "2")]),
        ("what nobody takes", ["a b\n\"é\"|/..", "%00#?&"]),
        ("the same but for what is not kept", ["n\0", "n\u{fffd}"]),
        ("another call's, as this server would write it", ["x-2", "x-1"]),
    ];
    for (what, [first, second]) in rows {
        let answer = ScriptedAnswer::on(wire)
            .call(first, "pay", &[&pays("1")])
            .call(second, "pay", &[&pays("2")])
            .end();
        assert_two_calls_are_distinguished(&stage, &thread, what, &answer).await;
    }
    let field = wire.facts().id_field;
    for instead in ["", &format!(r#""{field}":null,"#)] {
        let mut answer =
            ScriptedAnswer::on(wire).call("", "pay", &[&pays("1")]).call("", "pay", &[&pays("2")]).end();
        for data in &mut answer.events {
            *data = data.replace(&format!(r#""{field}":"","#), instead);
        }
        assert_two_calls_are_distinguished(&stage, &thread, "none", &answer).await;
    }
    stage.next_turn_works(&thread).await;
}
on_each_wire!(calls_are_distinguished_whatever_their_ids_are);

/// A chat event with this call delta.
fn piece(piece: &Value) -> String {
    json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [piece] } }] }).to_string()
}

#[tokio::test]
async fn deltas_without_an_index_find_their_call() {
    let stage = Stage::on(CHAT).await;
    let thread = stage.app.client.thread().await;
    let named = |id: Option<&str>| json!({ "id": id, "function": { "name": "pay", "arguments": "" } });
    let more =
        |id: Option<&str>, arguments: &str| json!({ "id": id, "function": { "arguments": arguments } });
    let (a, b) = (Some("a"), Some("b"));
    let mut placed = [named(a), more(None, &pays("1")), named(b), more(None, &pays("2"))];
    for piece in &mut placed {
        piece["index"] = json!(0);
    }
    let rows = [
        (
            "one behind the other",
            vec![named(a), more(None, "{\"note\":"), more(None, "\"1\"}"), named(b), more(None, &pays("2"))],
        ),
        (
            "mixed, by their ids",
            vec![named(a), named(b), more(a, "{\"note\":"), more(b, &pays("2")), more(a, "\"1\"}")],
        ),
        (
            "without an id either",
            vec![named(None), more(None, &pays("1")), named(None), more(None, &pays("2"))],
        ),
        ("all in the same place", placed.to_vec()),
    ];
    for (what, pieces) in rows {
        let answer = pieces.iter().fold(ScriptedAnswer::on(CHAT), |answer, it| answer.event(piece(it)));
        assert_two_calls_are_distinguished(&stage, &thread, what, &answer.ends(Ending::Calls)).await;
    }
    stage.next_turn_works(&thread).await;
}

async fn an_unknown_tool_runs_nothing_and_the_model_reads_the_error(wire: Wire) {
    let stage = Stage::on(wire).await;
    let thread = stage.app.client.thread().await;
    let long = "x".repeat(5000);
    for tool in ["steal", "Pay", "päy ", "pay\0", "functions.pay", " ", &long] {
        let answer = ScriptedAnswer::on(wire).call("a", tool, &[&pays("1")]).end();
        stage.upstream.answers(&answer).words("I see.");
        let turn = stage.run_turn_in(&thread).await;
        assert_eq!(turn.text(), "I see.", "{tool:?}: {}", turn.raw);
        stage.is(&turn, "completed").await;
        assert_eq!(turn.all('8'), [] as [&Value; 0], "{tool:?}");
        let error = turn.one('a')["result"].text("error");
        assert!(error.contains("no tool named"), "{tool:?}: {error}");
        let call = stage.calls_of(&thread).await.pop().unwrap();
        assert_eq!((&call["state"], &call["validated"]), (&json!("invalid"), &json!(false)), "{tool:?}");
        assert_eq!(turn.one('9')["toolName"], call["tool_name"], "streamed as a reload shows it");
        let request = stage.upstream.last();
        assert_eq!(wire.tool_results(&request).last().unwrap(), error, "{tool:?}");
        let (name, _) = wire.calls(&request).pop().unwrap();
        let plain = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '-';
        assert!(name.len() <= 64 && !name.is_empty() && name.chars().all(plain), "providers refuse {name:?}");
    }
    stage.next_turn_works(&thread).await;
    stage.nothing_ran();
}
on_each_wire!(an_unknown_tool_runs_nothing_and_the_model_reads_the_error);

async fn a_tool_that_was_not_offered_counts_as_unknown(wire: Wire) {
    let stage = Stage::on(wire).await;
    let thread = stage.app.client.thread().await;
    for tool in ["pay", "dawdle"] {
        stage.upstream.answers(&ScriptedAnswer::call_on(wire, "a", tool, &[&pays("1")])).words("I see.");
        let body = json!({ "content": "go", "tool_selection": ["look"] });
        let turn = stage.app.client.turn(&thread, &body).await;
        assert_eq!(turn.text(), "I see.", "{}", turn.raw);
        stage.is(&turn, "completed").await;
        let results = wire.tool_results(&stage.upstream.last()).pop().unwrap();
        assert!(results.contains("no tool named"), "{results}");
    }
    let states = stage.calls_of(&thread).await;
    assert!(states.iter().all(|call| call["state"] == "invalid"), "{states:?}");
    stage.next_turn_works(&thread).await;
    stage.nothing_ran();
}
on_each_wire!(a_tool_that_was_not_offered_counts_as_unknown);

async fn calls_over_the_limit_of_a_step_are_refused(wire: Wire) {
    const CALLS: usize = 200;
    const ALLOWED: usize = 16;
    let stage = Stage::on(wire).await;
    let call =
        |answer: ScriptedAnswer, n: usize| answer.call(&format!("p{n}"), "pay", &[&pays(&n.to_string())]);
    stage.upstream.answers(&(0..CALLS).fold(ScriptedAnswer::on(wire), call).end());
    let (thread, turn) = stage.run_turn().await;
    stage.is(&turn, "waiting").await;
    assert_eq!((turn.pending().len(), turn.all('9').len()), (ALLOWED, CALLS));
    assert_eq!(turn.all('a').len(), CALLS - ALLOWED);
    let invalid = stage.app.rows.count("tool_calls WHERE state = 'invalid'").await;
    assert_eq!(usize::try_from(invalid).unwrap(), CALLS - ALLOWED);
    for id in turn.pending() {
        stage.app.client.reject(&id).await.has_status(200);
    }
    stage.upstream.words("I see.");
    assert_eq!(stage.app.client.resume(&thread).await.text(), "I see.");
    let results = wire.tool_results(&stage.upstream.last());
    assert_eq!(results.len(), CALLS);
    assert!(results[..ALLOWED].iter().all(|text| text == "Tool execution rejected by user."));
    assert!(
        results[ALLOWED..]
            .iter()
            .all(|text| text.contains("More than 16 calls") && text.contains("did not run"))
    );

    // More calls than the hard limit fail the turn.
    stage.upstream.answers(&(0..300).fold(ScriptedAnswer::on(wire), call).end());
    let (other, turn) = stage.run_turn().await;
    stage.failed(&other, &turn, "upstream_malformed", "").await;
    stage.next_turn_works(&other).await;
    stage.next_turn_works(&thread).await;
    stage.nothing_ran();
}
on_each_wire!(calls_over_the_limit_of_a_step_are_refused);

async fn a_call_that_is_cut_off_is_not_held(wire: Wire) {
    let stage = Stage::on(wire).await;
    for ending in [Ending::Length, Ending::Filtered] {
        for cut in [&[][..], &["{\"note\":"], &["{\"note\":\"1\""]] {
            let answer =
                ScriptedAnswer::on(wire).call("a", "look", &[&pays("1")]).begin_call("b", "pay", cut);
            stage.upstream.answers(&answer.ends(ending)).words("Again?");
            let ran = stage.app.ledger.lines().len();
            let (thread, turn) = stage.run_turn().await;
            assert_eq!(turn.text(), "Again?", "{cut:?}: {}", turn.raw);
            stage.is(&turn, "completed").await;
            assert_eq!(stage.app.ledger.lines()[ran..], ["look 1"], "the whole one ran");
            let [whole, broken] = &stage.calls_of(&thread).await[..] else { panic!("{}", turn.raw) };
            assert_eq!((&whole["state"], &broken["state"]), (&json!("succeeded"), &json!("invalid")));
            let results = wire.tool_results(&stage.upstream.last());
            assert!(results[1].contains("broke off") && results[1].contains("did not run"), "{results:?}");
            assert_eq!(wire.calls(&stage.upstream.last())[1], ("pay".to_owned(), json!({})));
            stage.next_turn_works(&thread).await;
        }
    }
}
on_each_wire!(side by side a_call_that_is_cut_off_is_not_held if writes_arguments);

async fn a_call_is_held_whatever_the_finish_reason(wire: Wire) {
    let stage = Stage::on(wire).await;
    let answer = ScriptedAnswer::on(wire).call("a", "pay", &[&pays("1")]).ends(Ending::Stop);
    let (thread, turn, id) = stage.held(&answer).await;
    assert_eq!(turn.one('e')["finishReason"], "tool-calls");
    stage.app.client.reject(&id).await.has_status(200);
    stage.next_turn_works(&thread).await;
    stage.nothing_ran();
}
on_each_wire!(a_call_is_held_whatever_the_finish_reason);

async fn a_complete_call_is_held_even_if_the_answer_is_cut_off_after_it(wire: Wire) {
    let stage = Stage::on(wire).await;
    let answer = ScriptedAnswer::on(wire).call("a", "pay", &[&pays("1")]).ends(Ending::Length);
    let (thread, _, id) = stage.held(&answer).await;
    assert_eq!(stage.app.client.approve(&id).await.body["state"], "succeeded");
    stage.upstream.words("Paid.");
    assert_eq!(stage.app.client.resume(&thread).await.text(), "Paid.");
    assert_eq!(stage.app.ledger.lines(), ["pay 1"]);
    stage.next_turn_works(&thread).await;
}
on_each_wire!(a_complete_call_is_held_even_if_the_answer_is_cut_off_after_it);
