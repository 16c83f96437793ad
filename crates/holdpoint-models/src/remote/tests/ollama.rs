//! Tests of the wire `/api/chat`.

use super::parts::{Dice, Part, Position, StreamWriter};
use super::*;
use crate::remote::ollama::WIRE;

/// The wire in the tests of all wires.
pub(super) const SAMPLE: Sample = Sample {
    wire: WIRE,
    url: "http://127.0.0.1:9/v1/api/chat",
    headers: &[("authorization", "Bearer k")],
    replaceable: &[],
    errors: &[(r#"{"error":"no"}"#, FAILED)],
    unfinished_call: None,
    conversation,
    returns_state,
    streams: StreamWriter {
        has: |part| !matches!(part, Part::Source(..) | Part::File(..)),
        write,
        finish,
        separates: false,
        done: None,
    },
};

#[rustfmt::skip]
fn conversation() -> Value {
    let input = json!({"b": 1, "a": 2});
    json!({"model": "m", "stream": true, "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "x"}, {"role": "assistant", "content": "(no reply)"},
        {"role": "user", "content": "y"},
        {"role": "assistant", "content": "Hm.", "tool_calls": [
            {"id": "1", "function": {"name": "go", "arguments": input}}, {"id": "a b", "function": {"name": "go", "arguments": input}}]},
        {"role": "tool", "content": "done", "tool_name": "go", "tool_call_id": "1"},
        {"role": "tool", "content": "done", "tool_name": "go", "tool_call_id": "a b"},
    ]})
}

#[rustfmt::skip]
fn returns_state() {
    let thought = json!({"message": {"thinking": "So.", "tool_calls": [{"function": {"name": "go"}}]}, "done": true});
    assert_eq!(written(WIRE, state(WIRE, &thought.to_string()))["messages"][4]["thinking"], "So.");
}

fn write(part: &Part, _: Position, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |message: Value| events.push(json!({ "message": message, "done": false }));
    match part {
        Part::Text(text) => dice.pieces(text).iter().for_each(|it| push(json!({ "content": it }))),
        Part::Reasoning(text) => {
            dice.pieces(text).iter().for_each(|it| push(json!({ "content": "", "thinking": it })));
        }
        Part::Call { id, name, arguments } => push(json!({ "content": "",
            "tool_calls": [{ "id": id, "function": { "name": name, "arguments": arguments } }] })),
        Part::Source(..) | Part::File(..) => {}
    }
}

fn finish(_: bool, events: &mut Vec<Value>) {
    events.push(json!({ "message": { "role": "assistant", "content": "" }, "done": true,
        "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4 }));
}

#[rustfmt::skip]
#[test]
fn finish_reasons_and_token_counts_are_read() {
    let read = |events: &[&str]| line_of(WIRE, events);
    let thought = r#"{"message":{"thinking":"So."}}"#;
    assert_eq!(read(&[thought, r#"{"done":true,"done_reason":"length"}"#, thought]), "(So.) length");
    let call = r#"{"message":{"tool_calls":[{"function":{"name":"go"}}]}}"#;
    let done = r#"{"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}"#;
    assert_eq!(read(&[call, done]), "<0 go# 0> tool-calls 3/2");
}
