//! Holds that the user passes: what a model was sent once it is sent again, to the byte, whatever became of them since.

use super::{Stage, on_each_wire};
use crate::support::{Said, Wire};
use serde_json::{Value, json};

/// What a request says of the conversation, message by message, as it was written.
fn said(body: &Value) -> Vec<String> {
    let list = ["messages", "input", "contents"].iter().find_map(|list| body[list].as_array()).unwrap();
    list.iter().map(Value::to_string).collect()
}

async fn what_was_sent_stays_whatever_becomes_of_a_hold(wire: Wire) {
    let stage = Stage::on(wire).await;
    let client = &stage.app.client;
    let pays = json!({ "note": "1" }).to_string();
    let (thread, _, first) = stage.held(&Said::call_on(wire, "p-1", "pay", &[&pays])).await;
    stage.goes_on(&thread).await;
    // The model asks for the same again, and is told that it waits.
    stage.upstream.says(&Said::call_on(wire, "p-2", "pay", &[&pays])).words("It waits.");
    assert_eq!(client.say(&thread, "pay it").await.text(), "It waits.");
    let edit = json!({ "toolCallId": first, "isValidated": true, "validatedInputs": { "note": "2" } });
    assert_eq!(client.validate(&edit).await.body["state"], "succeeded");
    for _ in 0..2 {
        stage.goes_on(&thread).await;
    }
    let asked: Vec<_> = stage.upstream.asked().iter().map(|asked| said(&asked.body)).collect();
    assert_eq!(asked.len(), 6);
    for pair in asked.windows(2) {
        assert_eq!(pair[1][..pair[0].len()], pair[0], "{wire:?}: words that were sent have changed");
    }
    let note = "[tool outcome] pay, call p-1: A person changed the inputs";
    for (n, said) in asked.iter().enumerate() {
        let notes = said.iter().filter(|message| message.contains(note)).count();
        assert_eq!(notes, usize::from(n >= 4), "{wire:?}: request {n}");
    }
    let told = wire.told(&stage.upstream.last());
    let [waits, already] = &told[..] else { panic!("{wire:?}: {told:?}") };
    assert!(waits.starts_with("Awaiting approval") && already.starts_with("Already awaiting approval"));
}
on_each_wire!(what_was_sent_stays_whatever_becomes_of_a_hold);
