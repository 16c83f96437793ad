//! What a server sends for itself goes back to it: ids with a state, and fields that no wire knows.

use super::Stage;
use holdpoint_testkit::wires::chat::WIRE as CHAT;
use holdpoint_testkit::{JsonFields, RawResponse};
use serde_json::{Value, json};

fn stream(choices: &[Value]) -> RawResponse {
    let events = choices.iter().map(|choice| CHAT.frame(&json!({ "choices": [choice] }).to_string()));
    RawResponse::sends(CHAT, [events.collect::<String>()])
}

/// A step with one held call of this id, and these deltas before it.
fn paying(id: &str, before: &[Value], extra: &Value) -> RawResponse {
    let mut call = json!({ "index": 0, "id": id, "type": "function", "function": { "name": "pay", "arguments": r#"{"note":"1"}"# } });
    call.as_object_mut().unwrap().extend(extra.as_object().cloned().unwrap());
    let mut choices: Vec<_> = before.iter().map(|delta| json!({ "delta": delta })).collect();
    choices.push(json!({ "delta": { "tool_calls": [call] } }));
    choices.push(json!({ "delta": {}, "finish_reason": "tool_calls" }));
    stream(&choices)
}

impl Stage {
    /// Holds and approves the call, and returns the message of the step as it goes back.
    async fn goes_back(&self, reply: RawResponse) -> Value {
        self.upstream.then(reply);
        let (thread, turn) = self.run_turn().await;
        let [id] = &turn.pending()[..] else { panic!("{}", turn.raw) };
        assert_eq!(self.app.client.approve(id).await.body["state"], "succeeded");
        self.upstream.words("Paid.");
        assert_eq!(self.app.client.resume(&thread).await.text(), "Paid.");
        let request = self.upstream.last();
        let messages = request.list("messages");
        let step = messages.iter().find(|message| message["role"] == "assistant").unwrap();
        assert_eq!(step["tool_calls"][0]["id"], messages.last().unwrap()["tool_call_id"]);
        step.clone()
    }
}

/// Text that no compression shortens, as of a signature.
fn signature(length: usize) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        letters[usize::try_from(state >> 26).unwrap()]
    };
    String::from_utf8((0..length).map(|_| next()).collect()).unwrap()
}

#[tokio::test]
async fn a_long_id_of_a_call_comes_back_as_it_came() {
    let stage = Stage::on(CHAT).await;
    for length in [1024, 1025, 5000, 16 << 10] {
        let prefix = "call_1__thought__";
        let id = format!("{prefix}{}", signature(length - prefix.len()));
        let step = stage.goes_back(paying(&id, &[], &json!({}))).await;
        assert_eq!(step["tool_calls"][0]["id"], id);
    }
    // The bound: another id is used, and the call works.
    let step = stage.goes_back(paying(&signature((16 << 10) + 1), &[], &json!({}))).await;
    assert!(step["tool_calls"][0].text("id").len() < 100);
}

#[tokio::test]
async fn a_long_id_that_is_repeated_in_the_thread_is_used_once() {
    let stage = Stage::on(CHAT).await;
    let id = signature(3000);
    let thread = stage.app.client.thread().await;
    for turns in 1..=2 {
        stage.upstream.then(paying(&id, &[], &json!({})));
        let turn = stage.run_turn_in(&thread).await;
        let [call] = &turn.pending()[..] else { panic!("{}", turn.raw) };
        assert_eq!(stage.app.client.approve(call).await.body["state"], "succeeded");
        stage.upstream.words("Paid.");
        assert_eq!(stage.app.client.resume(&thread).await.text(), "Paid.");
        let ids: Vec<_> = stage
            .upstream
            .last()
            .list("messages")
            .iter()
            .filter_map(|message| message["tool_calls"][0]["id"].as_str().map(str::to_owned))
            .collect();
        assert_eq!((ids.len(), ids.iter().filter(|it| **it == id).count()), (turns, 1));
    }
}

#[tokio::test]
async fn fields_that_no_wire_knows_come_back_whole() {
    let stage = Stage::on(CHAT).await;
    let block = |text: &str, signature: Value| json!({ "thinking_blocks": [{ "type": "thinking", "thinking": text, "signature": signature }] });
    let before = [
        json!({ "role": "assistant", "content": null, "reasoning_content": "So", "x_state": { "n": 1 } }),
        block("S", json!(null)),
        block("o", json!(null)),
        block("", json!("c2ln")),
        json!({ "reasoning_opaque": "b3BhcXVl", "audio": { "id": "a" }, "x_state": { "m": 2 }, "empty": [] }),
    ];
    let extra = json!({ "extra_content": { "google": { "thought_signature": "s" } }, "provider_specific_fields": { "k": 1 } });
    let step = stage.goes_back(paying("a", &before, &extra)).await;
    assert_eq!(
        step["thinking_blocks"],
        json!([{ "type": "thinking", "thinking": "So", "signature": "c2ln" }])
    );
    assert_eq!(step["reasoning_opaque"], "b3BhcXVl");
    assert_eq!(step["x_state"], json!({ "n": 1, "m": 2 }));
    assert_eq!(step["reasoning_content"], "So");
    assert_eq!((step.get("audio"), step.get("empty")), (None, None));
    assert_eq!(step["tool_calls"][0]["extra_content"], extra["extra_content"]);
    assert_eq!(step["tool_calls"][0]["provider_specific_fields"], extra["provider_specific_fields"]);
}

#[tokio::test]
async fn fields_beyond_the_bound_do_not_come_back() {
    let stage = Stage::on(CHAT).await;
    let before = [json!({ "x_state": "x".repeat(2 << 20) })];
    let step = stage.goes_back(paying("a", &before, &json!({}))).await;
    assert_eq!(step.get("x_state"), None);
}
