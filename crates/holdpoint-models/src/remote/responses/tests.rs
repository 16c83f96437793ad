//! Tests of the wire `/responses`.

use super::*;
use crate::Speaker;
use crate::remote::tests::{
    self, Dice, FAILED, MeantAnswer, MeantCall, Part, Position, Sample, StreamWriter, UNAVAILABLE, line,
    line_of, names_in_a_state_with_one_call, object_or_text, places, plain_id, sse, state, written,
};

/// The wire in the tests of all wires.
pub(super) const SAMPLE: Sample = Sample {
    url: "http://127.0.0.1:9/v1/responses",
    headers: &[("authorization", "Bearer k")],
    replaceable: &["store", "include"],
    errors: &[
        (
            r#"data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"no"}}}"#,
            UNAVAILABLE,
        ),
        (r#"data: {"type":"error","code":"bad","message":"no"}"#, FAILED),
    ],
    unfinished_call: Some(concat!(
        r#"data: {"type":"response.output_item.added","item":{"type":"function_call","call_id":"a","name":"go"}}"#,
        "\n\n",
        r#"data: {"type":"response.completed"}"#,
        "\n\n",
    )),
    conversation,
    returns_state,
    streams: StreamWriter {
        has: |part| !matches!(part, Part::File(..)),
        write,
        finish,
        separates: true,
        done: None,
    },
    elsewhere,
};

#[rustfmt::skip]
fn conversation() -> Value {
    let text = r#"{"b":1,"a":2}"#;
    let id = plain_id();
    json!({"model": "m", "stream": true, "store": false,
        "include": ["reasoning.encrypted_content"], "instructions": "s", "input": [
        {"role": "user", "content": "x"}, {"role": "assistant", "content": "(no reply)"}, {"role": "user", "content": "y"},
        {"role": "assistant", "content": "Hm."},
        {"type": "function_call", "call_id": "1", "name": "go", "arguments": text},
        {"type": "function_call", "call_id": id, "name": "go", "arguments": text},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
        {"type": "function_call_output", "call_id": id, "output": "done"},
    ], "tools": [{"type": "function", "name": "go", "description": "Not available now.",
        "parameters": {"type": "object", "properties": {}}, "strict": false}], "tool_choice": "none"})
}

#[rustfmt::skip]
fn returns_state() {
    let item = |index: u64, item: Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Hm.", "annotations": []}]});
    let call = |id: &str| json!({"type": "function_call", "id": id, "call_id": "c", "name": "go", "arguments": "{}"});
    let kept = state(WIRE, &sse(&[
        item(0, reasoning.clone()), item(1, message.clone()),
        item(2, call("fc_1")), item(3, call("fc_2")), json!({"type": "response.completed"}),
    ]));
    let input = &written(WIRE, kept)["input"];
    assert_eq!(input[3], reasoning);
    assert_eq!(input[4], message);
    assert_eq!((&input[5]["id"], &input[5]["call_id"], &input[6]["id"]), (&json!("fc_1"), &json!("1"), &json!("fc_2")));
}

fn write(part: &Part, at: Position, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |kind: &str, mut event: Value| {
        event["type"] = kind.into();
        event["output_index"] = at.part.into();
        events.push(event);
    };
    match part {
        Part::Text(text) => {
            push("response.output_item.added", json!({ "item": { "type": "message", "id": "m" } }));
            dice.pieces(text)
                .iter()
                .for_each(|it| push("response.output_text.delta", json!({ "delta": it })));
            let content = json!([{ "type": "output_text", "text": text }]);
            push("response.output_item.done", json!({ "item": { "type": "message", "content": content } }));
        }
        Part::Reasoning(text) => dice.pieces(text).iter().for_each(|it| {
            push("response.reasoning_summary_text.delta", json!({ "delta": it }));
        }),
        Part::Call { id, name, arguments } => {
            let arguments = Value::from(arguments.clone()).to_string();
            let item = |arguments: &str| {
                let call_id = format!("{id}{}", at.part);
                json!({ "item": { "type": "function_call", "call_id": call_id, "name": name, "arguments": arguments } })
            };
            push("response.output_item.added", item(""));
            if dice.roll(3) > 0 {
                for piece in dice.pieces(&arguments) {
                    push("response.function_call_arguments.delta", json!({ "delta": piece }));
                }
            }
            push("response.output_item.done", item(&arguments));
        }
        Part::Source(url, title) => {
            let annotation = json!({ "type": "url_citation", "url": url, "title": title });
            push("response.output_text.annotation.added", json!({ "annotation": annotation }));
        }
        Part::File(..) => {}
    }
}

fn finish(_: bool, events: &mut Vec<Value>) {
    let usage = json!({ "input_tokens": 3, "output_tokens": 4 });
    let response = json!({ "status": "completed", "usage": usage });
    events.push(json!({ "type": "response.completed", "response": response }));
}

fn elsewhere(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
    let (ids, indexes) = [(true, true), (true, false), (false, true), (false, false)][dice.roll(4)];
    let mut events: Vec<Value> = Vec::new();
    let mut output = Vec::new();
    let mut position = 0;
    let mut item =
        |kind: &str, whole: Value, say: &dyn Fn(&mut Dice, [bool; 4]) -> Vec<Value>, dice: &mut Dice| {
            let drawn: [bool; 4] = places(dice);
            let mut whole = whole;
            whole["type"] = kind.into();
            let id = format!("i{position}");
            if ids {
                whole["id"] = json!(id);
            }
            let mut push = |mut event: Value| {
                if ids && event["item"].is_null() {
                    event["item_id"] = json!(id);
                }
                if indexes {
                    event["output_index"] = position.into();
                }
                events.push(event);
            };
            if kind == "function_call" || dice.roll(2) == 0 {
                let mut begin = whole.clone();
                for later in ["content", "summary", "arguments"] {
                    begin.as_object_mut().unwrap().remove(later);
                }
                push(json!({ "type": "response.output_item.added", "item": begin }));
            }
            say(dice, drawn).into_iter().for_each(&mut push);
            if drawn[2] {
                push(json!({ "type": "response.output_item.done", "item": whole }));
            }
            if drawn[3] {
                output.push(whole);
            }
            position += 1;
        };
    if !meant.reasoning.is_empty() {
        let summary = json!([{ "type": "summary_text", "text": meant.reasoning }]);
        let say = |dice: &mut Dice, drawn: [bool; 4]| {
            let kind = "response.reasoning_summary_text";
            let pieces = if drawn[0] { dice.pieces(&meant.reasoning) } else { Vec::new() };
            let deltas = pieces.iter().map(|it| json!({ "type": format!("{kind}.delta"), "delta": it }));
            let done = json!({ "type": format!("{kind}.done"), "text": meant.reasoning });
            deltas.chain(drawn[1].then_some(done)).collect()
        };
        item("reasoning", json!({ "summary": summary }), &say, dice);
    }
    if !meant.text.is_empty() {
        let content = json!([{ "type": "output_text", "text": meant.text, "annotations": [] }]);
        let say = |dice: &mut Dice, drawn: [bool; 4]| {
            let pieces = if drawn[0] { dice.pieces(&meant.text) } else { Vec::new() };
            let mut said: Vec<_> = pieces
                .iter()
                .map(|it| json!({ "type": "response.output_text.delta", "delta": it }))
                .collect();
            if drawn[1] {
                said.push(json!({ "type": "response.output_text.done", "text": meant.text }));
                said.push(json!({ "type": "response.content_part.done", "part": content[0] }));
            }
            said
        };
        item("message", json!({ "content": content }), &say, dice);
    }
    for MeantCall { id, name, input } in &meant.calls {
        let whole = json!({ "call_id": id, "name": name, "arguments": object_or_text(input, dice) });
        let say = |dice: &mut Dice, drawn: [bool; 4]| {
            let kind = "response.function_call_arguments";
            let empty = if dice.roll(3) == 0 { "{}" } else { "" };
            let pieces = if drawn[0] { dice.pieces(&format!("{empty}{input}")) } else { Vec::new() };
            let deltas = pieces.iter().map(|it| json!({ "type": format!("{kind}.delta"), "delta": it }));
            let done = json!({ "type": format!("{kind}.done"), "arguments": object_or_text(input, dice) });
            deltas.collect::<Vec<_>>().into_iter().chain(drawn[1].then_some(done)).collect()
        };
        item("function_call", whole, &say, dice);
    }
    let usage = json!({ "input_tokens": "3", "output_tokens": 4 });
    let response = json!({ "status": "completed", "output": output, "usage": usage });
    events.push(json!({ "type": "response.completed", "response": response }));
    events.iter().map(Value::to_string).collect()
}

#[rustfmt::skip]
#[test]
fn finish_reasons_and_token_counts_are_read() {
    let read = |events: &[&str]| line_of(WIRE, events);
    let end = r#"{"type":"response.completed"}"#;
    let refusal = r#"{"type":"response.refusal.delta","delta":"No."}"#;
    assert_eq!(read(&[refusal, end, refusal]), "No. stop");
    let filtered = r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#;
    assert_eq!(read(&[filtered]), "content-filter");
    assert_eq!(read(&["[DONE]"]), format!("{UNAVAILABLE}it broke off before its answer"));
    let (part, thought) = (r#"{"type":"response.reasoning_summary_part.added"}"#, r#"{"type":"response.reasoning_summary_text.delta","delta":"So."}"#);
    assert_eq!(read(&[part, thought, part, thought, end]), "(So.) (\n\n) (So.) stop");
    let item = r#"{"type":"function_call","call_id":"a","name":"go","arguments":"{}"}"#;
    let (added, done) = ["added", "done"].map(|what| format!(r#"{{"type":"response.output_item.{what}","item":{item}}}"#)).into();
    let delta = r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#;
    assert_eq!(read(&[&added, delta, &done, end]), "<0 go#a 0:{} 0> tool-calls");
    assert_eq!(read(&[&added, &added, delta, &done, end]), "<0 go#a 0:{} 0> tool-calls", "a begin that is said twice");
}

#[test]
fn of_several_arguments_without_a_call_each_reading_names_the_first() {
    let delta = |item: u8| {
        let event = "response.function_call_arguments.delta";
        json!({ "type": event, "item_id": format!("fc_{}", 9 - item), "output_index": item, "delta": "{}" })
    };
    let events = [delta(3), delta(1), delta(2), json!({ "type": "response.completed" })];
    for _ in 0..32 {
        let read = line(WIRE, &sse(&events));
        assert!(read.ends_with("item 1 has arguments but is no call"), "{read}");
    }
}

#[rustfmt::skip]
#[test]
fn a_provider_state_does_not_end_with_reasoning() {
    let done = |index: u64, item: Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "ZW5j"});
    let message = json!({"type": "message", "role": "assistant", "phase": "commentary", "content": []});
    let cut = json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}});
    let read = line(WIRE, &sse(&[done(0, message.clone()), done(1, reasoning), cut]));
    assert_eq!(read.split_once("length").unwrap().1.trim(), json!([message]).to_string());
}

#[test]
fn a_call_that_the_state_does_not_name_is_written_as_well() {
    assert_eq!(names_in_a_state_with_one_call(WIRE), 3);
}

#[rustfmt::skip]
#[test]
fn a_provider_state_that_lacks_an_emitted_part_is_dropped() {
    let read = |events: &[&str]| line_of(WIRE, events);
    let done = |output_index: u8, item: &str| format!(r#"{{"type":"response.output_item.done","output_index":{output_index},"item":{item}}}"#);
    let reasoning = done(0, r#"{"type":"reasoning","encrypted_content":"ZW5j"}"#);
    let message = done(1, r#"{"type":"message","content":[]}"#);
    let added = r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"a","name":"go"}}"#;
    let words = r#"{"type":"response.output_text.delta","output_index":2,"delta":"Hm."}"#;
    let cut = r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#;
    assert!(read(&[&reasoning, &message, cut]).starts_with("length ["));
    assert_eq!(read(&[&reasoning, &message, added, cut]), "<0 go#a length");
    assert_eq!(read(&[&reasoning, &message, words, cut]), "Hm. length");
    let bare = done(0, r#"{"type":"reasoning","encrypted_content":null}"#);
    assert_eq!(read(&[&bare, &message, cut]), "length", "what the server has not stored cannot be named to it");
    let phased = done(0, r#"{"type":"message","phase":"commentary"}"#);
    assert!(read(&[&phased, cut]).starts_with("length ["));
}

#[test]
fn only_models_that_reason_are_asked_for_reasoning() {
    for (model, includes) in [("gpt-4o", false), ("ft:gpt-4o:me", false), ("o3", true)] {
        let body = (WIRE.body)(model, &tests::conversation(Speaker::Another), &WIRE.written_tools());
        assert_eq!(body.contains_key("include"), includes, "{model}");
    }
}
