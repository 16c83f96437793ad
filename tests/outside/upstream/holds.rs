//! Threads that continue past a pending call: every later request repeats the earlier messages byte for byte,
//! whatever becomes of the call.

use super::{Stage, on_each_wire};
use holdpoint_testkit::{ScriptedAnswer, Wire};
use serde_json::{Value, json};

/// The conversation of a request, message by message, as written.
fn conversation(body: &Value) -> Vec<String> {
    let list = ["messages", "input", "contents"].iter().find_map(|list| body[list].as_array()).unwrap();
    list.iter().map(Value::to_string).collect()
}

async fn sent_messages_never_change_whatever_becomes_of_a_hold(wire: Wire) {
    let stage = Stage::on(wire).await;
    let client = &stage.app.client;
    let pays = json!({ "note": "1" }).to_string();
    let (thread, _, first) = stage.held(&ScriptedAnswer::call_on(wire, "p-1", "pay", &[&pays])).await;
    stage.next_turn_works(&thread).await;
    // The model repeats the call and reads that it is already pending.
    stage.upstream.answers(&ScriptedAnswer::call_on(wire, "p-2", "pay", &[&pays])).words("It waits.");
    assert_eq!(client.send_message(&thread, "pay it").await.text(), "It waits.");
    let edit = json!({ "toolCallId": first, "isValidated": true, "validatedInputs": { "note": "2" } });
    assert_eq!(client.validate(&edit).await.body["state"], "succeeded");
    for _ in 0..2 {
        stage.next_turn_works(&thread).await;
    }
    let requested: Vec<_> =
        stage.upstream.requests().iter().map(|requested| conversation(&requested.body)).collect();
    assert_eq!(requested.len(), 6);
    for pair in requested.windows(2) {
        assert_eq!(pair[1][..pair[0].len()], pair[0], "{wire:?}: sent messages have changed");
    }
    let note = "[tool outcome] pay, call p-1: A person changed the inputs";
    for (n, conversation) in requested.iter().enumerate() {
        let notes = conversation.iter().filter(|message| message.contains(note)).count();
        assert_eq!(notes, usize::from(n >= 4), "{wire:?}: request {n}");
    }
    let results = wire.tool_results(&stage.upstream.last());
    let [waits, already] = &results[..] else { panic!("{wire:?}: {results:?}") };
    assert!(waits.starts_with("Awaiting approval") && already.starts_with("Already awaiting approval"));
}
on_each_wire!(sent_messages_never_change_whatever_becomes_of_a_hold);
