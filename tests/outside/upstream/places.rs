//! Answers that say a thing in another place than the book does, or twice.

use super::{Stage, text};
use holdpoint_testkit::wires::chat::WIRE as CHAT;
use holdpoint_testkit::wires::responses::WIRE as RESPONSES;
use holdpoint_testkit::{RawResponse, Wire};
use serde_json::{Value, json};

const PAYS: &str = r#"{"note":"1"}"#;

fn stream(wire: Wire, events: &[Value]) -> RawResponse {
    RawResponse::sends(wire, [events.iter().map(|event| wire.frame(&event.to_string())).collect::<String>()])
}

fn choice(choice: Value) -> Value {
    json!({ "choices": [choice] })
}

fn delta(delta: Value) -> Value {
    choice(json!({ "index": 0, "delta": delta }))
}

fn ends(reason: &str) -> Value {
    choice(json!({ "index": 0, "delta": {}, "finish_reason": reason }))
}

impl Stage {
    /// Asserts that the page, the stored message and the model get this text once.
    async fn says(&self, reply: RawResponse, words: &str) {
        self.upstream.then(reply);
        let (thread, turn) = self.run_turn().await;
        assert_eq!(turn.text(), words, "{}", turn.raw);
        self.is(&turn, "completed").await;
        assert_eq!(text(&self.app.client.messages(&thread).await[1]), words);
        let request = self.next_turn_works(&thread).await.to_string();
        let sent = json!(words).to_string();
        assert_eq!(request.matches(sent.trim_matches('"')).count(), 1, "{request}");
    }

    /// Asserts that each of the calls is held, with the inputs of `pay`.
    async fn holds(&self, reply: RawResponse, notes: &[&str]) {
        self.upstream.then(reply);
        let (thread, turn) = self.run_turn().await;
        let shown: Vec<_> = turn.all('9').iter().map(|call| call["args"]["note"].clone()).collect();
        assert_eq!(shown, notes, "{}", turn.raw);
        self.is(&turn, "waiting").await;
        assert_eq!(turn.pending().len(), notes.len());
        for id in turn.pending() {
            self.app.client.reject(&id).await.has_status(200);
        }
        self.next_turn_works(&thread).await;
        self.nothing_ran();
    }
}

#[tokio::test]
async fn a_chat_answer_is_read_once_wherever_it_is_said() {
    let stage = Stage::on(CHAT).await;
    let whole = json!({ "role": "assistant", "content": "Hello world." });
    let closing = json!({ "object": "chat.completion", "choices": [{ "index": 0, "finish_reason": "stop", "message": whole }] });
    let pieces = [delta(json!({ "content": "Hello " })), delta(json!({ "content": "world." }))];
    let [first, second] = pieces.clone();
    stage.says(stream(CHAT, &[first.clone(), second.clone(), closing.clone()]), "Hello world.").await;
    stage
        .says(stream(CHAT, &[first.clone(), second, closing.clone(), closing.clone()]), "Hello world.")
        .await;
    stage.says(stream(CHAT, &[first, closing.clone()]), "Hello world.").await;
    stage.says(stream(CHAT, std::slice::from_ref(&closing)), "Hello world.").await;
    let repeated =
        choice(json!({ "delta": { "content": "Hello world, once more." }, "finish_reason": "stop" }));
    let words = ["Hello world", ", once more."].map(|it| delta(json!({ "content": it })));
    stage
        .says(stream(CHAT, &[words[0].clone(), words[1].clone(), repeated]), "Hello world, once more.")
        .await;
    // A server that does not stream.
    let pretty = serde_json::to_string_pretty(&closing).unwrap();
    for (kind, body) in
        [("application/json", pretty.clone()), ("text/event-stream", pretty + "\n\ndata: [DONE]\n\n")]
    {
        let acts = vec![holdpoint_testkit::ResponseAction::Send(body.into_bytes())];
        stage.says(RawResponse::answers(200, kind, acts), "Hello world.").await;
    }
}

#[tokio::test]
async fn a_chat_call_is_made_once_wherever_it_is_said() {
    let stage = Stage::on(CHAT).await;
    let call = |id: Value, arguments: &str| json!({ "index": 0, "id": id, "type": "function", "function": { "name": "pay", "arguments": arguments } });
    let piece = |call: &Value| delta(json!({ "tool_calls": [call] }));
    let whole = call(json!("a"), PAYS);
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [whole] });
    let closing = json!({ "object": "chat.completion", "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": message }] });
    stage.holds(stream(CHAT, std::slice::from_ref(&closing)), &["1"]).await;
    stage.holds(stream(CHAT, &[piece(&whole), closing.clone()]), &["1"]).await;
    stage.holds(stream(CHAT, &[piece(&call(json!("a"), "")), closing.clone(), closing]), &["1"]).await;
    // A summary of the call at its end, also as text within text.
    let doubled = call(json!("a"), &json!(PAYS).to_string());
    stage.holds(stream(CHAT, &[piece(&whole), piece(&whole), ends("tool_calls")]), &["1"]).await;
    stage.holds(stream(CHAT, &[piece(&whole), piece(&doubled), ends("tool_calls")]), &["1"]).await;
    // The end of the stream without a reason, after whole arguments.
    let done = |events: &[Value]| {
        let events: String = events.iter().map(|event| CHAT.frame(&event.to_string())).collect();
        RawResponse::sends(CHAT, [events + "data: [DONE]\n\n"])
    };
    stage.holds(done(&[piece(&whole)]), &["1"]).await;
    for cut in ["", "{\"note\":"] {
        stage.upstream.then(done(&[piece(&call(json!("a"), cut))]));
        let (thread, turn) = stage.run_turn().await;
        stage.failed(&thread, &turn, "upstream_malformed", "").await;
        stage.next_turn_works(&thread).await;
    }
    // Words without a reason may be cut off.
    stage.upstream.then(done(&[delta(json!({ "content": "So far" }))]));
    let (thread, turn) = stage.run_turn().await;
    stage.failed(&thread, &turn, "upstream_malformed", "So far").await;
    stage.next_turn_works(&thread).await;
}

#[tokio::test]
async fn a_call_without_arguments_is_made_whatever_the_servers_own_reason_is() {
    let stage = Stage::on(CHAT).await;
    let call = |name: &str| {
        delta(json!({ "tool_calls": [{ "index": 0, "function": { "name": name, "arguments": "" } }] }))
    };
    for (reason, calls) in [("end_turn", 1), ("weird", 1), ("tool_calls", 2)] {
        let events: Vec<_> = (0..calls).map(|_| call("look")).chain([ends(reason)]).collect();
        stage.upstream.then(stream(CHAT, &events)).words("I see.");
        let (thread, turn) = stage.run_turn().await;
        assert_eq!(turn.text(), "I see.", "{reason}: {}", turn.raw);
        // The tool needs an argument, and says so: the call did not break off, and none of two is lost.
        let results = CHAT.tool_results(&stage.upstream.last());
        assert_eq!(results.len(), calls, "{reason}");
        assert!(
            results.iter().all(|text| text.contains("note") && !text.contains("broke off")),
            "{results:?}"
        );
        stage.next_turn_works(&thread).await;
    }
}

#[tokio::test]
async fn an_answer_of_responses_is_read_once_wherever_it_is_said() {
    let stage = Stage::on(RESPONSES).await;
    let message = |text: &str| json!({ "type": "message", "id": "m1", "role": "assistant", "content": [{ "type": "output_text", "text": text, "annotations": [] }] });
    let completed = |output: Value| json!({ "type": "response.completed", "response": { "status": "completed", "output": output } });
    let words = message("Hello world.");
    let said = json!({ "type": "response.output_text.delta", "item_id": "m1", "delta": "Hello " });
    let done = json!({ "type": "response.output_text.done", "item_id": "m1", "text": "Hello world." });
    let item = json!({ "type": "response.output_item.done", "item": words });
    let empty = completed(json!([]));
    for events in [
        vec![completed(json!([words]))],
        vec![done.clone(), empty.clone()],
        vec![item.clone(), empty.clone()],
        vec![said, done, item, completed(json!([words]))],
    ] {
        stage.says(stream(RESPONSES, &events), "Hello world.").await;
    }
    let whole = json!({ "object": "response", "status": "completed", "output": [words] });
    let acts = vec![holdpoint_testkit::ResponseAction::Send(whole.to_string().into_bytes())];
    stage.says(RawResponse::answers(200, "application/json", acts), "Hello world.").await;

    // Two messages are separated, for the page and for the model.
    let delta =
        |id: &str, text: &str| json!({ "type": "response.output_text.delta", "item_id": id, "delta": text });
    let two = [delta("m1", "I look."), delta("m2", "Two "), delta("m2", "files."), empty.clone()];
    stage.says(stream(RESPONSES, &two), "I look.\n\nTwo files.").await;

    let call = |id: &str, arguments: Value| json!({ "type": "function_call", "id": id, "call_id": format!("c{id}"), "name": "pay", "arguments": arguments });
    let added = |id: &str| json!({ "type": "response.output_item.added", "item": call(id, json!("")) });
    let written = |id: &str, note: &str| json!({ "type": "response.function_call_arguments.done", "item_id": id, "arguments": json!({ "note": note }).to_string() });
    stage.holds(stream(RESPONSES, &[completed(json!([call("f1", json!(PAYS))]))]), &["1"]).await;
    let object = json!({ "type": "response.output_item.done", "item": call("f1", json!({ "note": "1" })) });
    stage.holds(stream(RESPONSES, &[object, empty.clone()]), &["1"]).await;
    let both = [added("f1"), added("f2"), written("f2", "2"), written("f1", "1"), empty];
    stage.holds(stream(RESPONSES, &both), &["1", "2"]).await;
}

#[tokio::test]
async fn a_text_that_is_cut_within_a_character_is_joined() {
    let stage = Stage::on(CHAT).await;
    let frames = |pieces: &[&str]| {
        let framed = pieces
            .iter()
            .map(|it| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{it}\"}}}}]}}\n\n"));
        framed.chain([CHAT.frame(&ends("stop").to_string())]).collect::<String>()
    };
    for (pieces, read) in [
        (&[r"hi \ud83d", r"\ude00 bye"][..], "hi 😀 bye"),
        (&[r"hi \ud83d", " bye"], "hi \u{fffd} bye"),
        (&[r"hi \ud83d"], "hi \u{fffd}"),
        (&[r"hi", r"\ude00"], "hi\u{fffd}"),
    ] {
        stage.says(RawResponse::sends(CHAT, [frames(pieces)]), read).await;
    }
}

#[tokio::test]
async fn values_of_odd_types_are_read() {
    let stage = Stage::on(CHAT).await;
    for (event, read) in [
        (json!({ "choices": [{ "index": "0", "delta": { "content": 42 } }] }), "42"),
        (
            json!({ "choices": [{ "index": -1, "delta": { "content": "a", "reasoning": { "text": "Hm." } } }] }),
            "a",
        ),
        (json!({ "choices": { "delta": { "content": [{ "type": "text", "text": "a" }] } } }), "a"),
    ] {
        let last = json!({ "choices": [{ "delta": {}, "finish_reason": "stop", "usage": { "prompt_tokens": 3.0, "completion_tokens": "4" } }] });
        stage.upstream.then(stream(CHAT, &[event, last]));
        let (_, turn) = stage.run_turn().await;
        assert_eq!(turn.text(), read, "{}", turn.raw);
        assert_eq!(turn.one('d')["usage"], json!({ "promptTokens": 3, "completionTokens": 4 }));
    }
    let call = json!({ "index": "0", "id": 7, "function": { "name": "pay", "arguments": { "note": "1" } } });
    stage.holds(stream(CHAT, &[delta(json!({ "tool_calls": [call] })), ends("tool_calls")]), &["1"]).await;
}
