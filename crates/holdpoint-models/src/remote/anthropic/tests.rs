//! Tests of the wire `/messages`.

use super::*;
use crate::remote::tests::{
    Dice, FAILED, MALFORMED, MeantAnswer, MeantCall, Part, Position, Sample, StreamWriter, UNAVAILABLE, line,
    line_of, names_in_a_state_with_one_call, places, plain_id, sse, state, written,
};

/// The wire in the tests of all wires.
pub(super) const SAMPLE: Sample = Sample {
    url: "http://127.0.0.1:9/v1/messages",
    headers: &[("x-api-key", "k"), ("anthropic-version", "2023-06-01")],
    replaceable: &["max_tokens"],
    errors: &[
        (r#"data: {"type":"error","error":{"type":"overloaded_error","message":"no"}}"#, UNAVAILABLE),
        (r#"data: {"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#, FAILED),
    ],
    unfinished_call: Some(concat!(
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"go"}}"#,
        "\n\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
        "\n\n",
    )),
    conversation,
    returns_state,
    streams: StreamWriter {
        has: |part| !matches!(part, Part::File(..)),
        write,
        finish,
        separates: false,
        done: None,
    },
    elsewhere,
};

#[rustfmt::skip]
fn conversation() -> Value {
    let input = json!({"b": 1, "a": 2});
    let id = plain_id();
    json!({"model": "m", "max_tokens": 8192, "stream": true, "system": "s", "messages": [
        {"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "text", "text": "(no reply)"}]},
        {"role": "user", "content": "y"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hm."},
            {"type": "tool_use", "id": "1", "name": "go", "input": input}, {"type": "tool_use", "id": id, "name": "go", "input": input}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "done"},
            {"type": "tool_result", "tool_use_id": id, "content": "done"}]},
    ], "tools": [{"name": "go", "description": "Not available now.", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "none"}})
}

#[rustfmt::skip]
fn returns_state() {
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let kept = state(WIRE, &sse(&[
        block(0, json!({"type": "thinking", "thinking": ""})), delta(0, json!({"thinking": "Let "})), delta(0, json!({"thinking": "me."})),
        delta(0, json!({"signature": "c2ln"})), block(1, json!({"type": "redacted_thinking", "data": "ZGF0YQ"})),
        block(2, json!({"type": "text", "text": "Hm."})), block(3, json!({"type": "tool_use", "id": "1", "name": "go"})),
        block(4, json!({"type": "tool_use", "id": "a b", "name": "go"})),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}), json!({"type": "message_stop"}),
    ]));
    let content = &written(WIRE, kept)["messages"][3]["content"];
    assert_eq!(content[0], json!({"type": "thinking", "thinking": "Let me.", "signature": "c2ln"}));
    assert_eq!(content[1], json!({"type": "redacted_thinking", "data": "ZGF0YQ"}));
    assert_eq!((&content[2]["text"], &content[3]["id"], &content[4]["name"]), (&json!("Hm."), &json!("1"), &json!("go")));
    assert_eq!(content.as_array().unwrap().len(), 5);
}

fn write(part: &Part, at: Position, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |kind: &str, mut event: Value| {
        event["type"] = kind.into();
        event["index"] = at.part.into();
        events.push(event);
    };
    let (block, deltas) = match part {
        Part::Text(text) => (json!({ "type": "text", "text": "" }), ("text_delta", "text", text.clone())),
        Part::Reasoning(text) => {
            (json!({ "type": "thinking", "thinking": "" }), ("thinking_delta", "thinking", text.clone()))
        }
        Part::Call { id, name, arguments } => {
            let arguments = Value::from(arguments.clone());
            let at_once = dice.roll(4) == 0;
            let input = if at_once { arguments.clone() } else { json!({}) };
            let rest = if at_once { String::new() } else { arguments.to_string() };
            let block =
                json!({ "type": "tool_use", "id": format!("{id}{}", at.part), "name": name, "input": input });
            (block, ("input_json_delta", "partial_json", rest))
        }
        Part::Source(url, title) => {
            push("content_block_start", json!({ "content_block": { "type": "text", "text": "" } }));
            let citation = json!({ "type": "web_search_result_location", "url": url, "title": title });
            let delta = json!({ "type": "citations_delta", "citation": citation });
            push("content_block_delta", json!({ "delta": delta }));
            return push("content_block_stop", json!({}));
        }
        Part::File(..) => return,
    };
    push("content_block_start", json!({ "content_block": block }));
    let (kind, field, text) = deltas;
    for piece in dice.pieces(&text) {
        if dice.roll(5) == 0 {
            push("ping", json!({}));
        }
        push("content_block_delta", json!({ "delta": { "type": kind, field: piece } }));
    }
    push("content_block_stop", json!({}));
}

fn finish(calls: bool, events: &mut Vec<Value>) {
    let usage = json!({ "input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 1 });
    events.insert(0, json!({ "type": "message_start", "message": { "usage": usage } }));
    let reason = if calls { "tool_use" } else { "end_turn" };
    events.push(json!({ "type": "message_delta", "usage": { "output_tokens": 4 },
        "delta": { "stop_reason": reason } }));
    events.push(json!({ "type": "message_stop" }));
}

fn elsewhere(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
    let mut blocks = Vec::new();
    if !meant.reasoning.is_empty() {
        blocks.push((
            json!({ "type": "thinking", "thinking": meant.reasoning }),
            "thinking",
            meant.reasoning.clone(),
        ));
    }
    if !meant.text.is_empty() {
        blocks.push((json!({ "type": "text", "text": meant.text }), "text", meant.text.clone()));
    }
    for MeantCall { id, name, input } in &meant.calls {
        let block = json!({ "type": "tool_use", "id": id, "name": name, "input": input });
        blocks.push((block, "partial_json", input.to_string()));
    }
    let reason = json!({ "stop_reason": meant.reason("end_turn", "tool_use") });
    let delta = json!({ "type": "message_delta", "delta": reason, "usage": { "output_tokens": 4 } });
    let mut events = vec![
        json!({ "type": "message_start", "message": { "content": [], "usage": { "input_tokens": 3 } } }),
    ];
    if dice.roll(3) == 0 {
        events.push(delta.clone());
    }
    let content: Value = blocks.iter().map(|(whole, _, _)| whole.clone()).collect();
    let same_index = dice.roll(3) == 0;
    // What no event of a block says, the whole message has to say.
    let mut is_whole = dice.roll(2) == 0;
    for (n, (whole, field, text)) in blocks.into_iter().enumerate() {
        let [begin, pieces, end, _]: [bool; 4] = places(dice);
        if !begin && !pieces && !end {
            is_whole = true;
            continue;
        }
        let mut push = |kind: &str, mut event: Value| {
            event["type"] = kind.into();
            event["index"] = if same_index { json!(0) } else { json!(n) };
            events.push(event);
        };
        let mut empty = whole.clone();
        for field in ["text", "thinking", "input"] {
            if whole.get(field).is_some() {
                empty[field] = if field == "input" { json!({}) } else { json!("") };
            }
        }
        // The text in the first event is the first piece. The input there counts without pieces only.
        let in_begin = begin && (!pieces || field == "partial_json");
        let first = if in_begin { &whole } else { &empty };
        for _ in 0..=dice.roll(2) {
            push("content_block_start", json!({ "content_block": first }));
        }
        if pieces {
            dice.pieces(&text)
                .iter()
                .for_each(|it| push("content_block_delta", json!({ "delta": { field: it } })));
        }
        if end {
            push("content_block_stop", json!({ "content_block": whole }));
        } else {
            push("content_block_stop", json!({}));
        }
    }
    events.push(delta.clone());
    if dice.roll(2) == 0 {
        events.push(delta);
    }
    let mut stop = json!({ "type": "message_stop" });
    if is_whole {
        stop["message"] = json!({ "content": content, "stop_reason": reason["stop_reason"] });
    }
    events.push(stop);
    events.iter().map(Value::to_string).collect()
}

#[rustfmt::skip]
#[test]
fn finish_reasons_and_token_counts_are_read() {
    let read = |events: &[&str]| line_of(WIRE, events);
    let block = |block: &str| format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
    let ends = |reason: &str| format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#);
    let words = block(r#"{"type":"text","text":"Hm."}"#);
    for (reason, expected) in [("stop_sequence", "stop"), ("model_context_window_exceeded", "length"), ("refusal", "content-filter")] {
        assert_eq!(read(&[&words, &ends(reason)]), format!("Hm. {expected}"));
    }
    assert_eq!(read(&[&words, &words]), format!("Hm. {MALFORMED}it broke off before its end"), "a begin that is said twice");
    assert_eq!(read(&[r#"{"type":"error"}"#]), format!("{FAILED}error in the stream: no message"));
    let over = r#"{"type":"message_stop"}"#;
    assert_eq!(read(&[&words, &ends("end_turn"), over, &words]), "Hm. stop");
    let usage = r#"{"input_tokens":10,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":1}"#;
    let start = format!(r#"{{"type":"message_start","message":{{"usage":{usage}}}}}"#);
    for last in [usage.to_owned(), r#"{"output_tokens":1}"#.into(), r#"{"input_tokens":0,"output_tokens":1}"#.into()] {
        let end = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{last}}}"#);
        assert_eq!(read(&[&start, &words, &end]), "Hm. stop 15/1", "{last}");
    }
    let call = block(r#"{"type":"tool_use","id":"a","name":"go","input":{"n":1}}"#);
    let piece = r#"{"type":"content_block_delta","index":0,"delta":{"partial_json":"{}"}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    assert_eq!(read(&[&call, stop, &ends("tool_use")]), r#"<0 go#a 0:{"n":1} 0> tool-calls"#);
    assert_eq!(read(&[&call, piece, stop, &ends("tool_use")]), "<0 go#a 0:{} 0> tool-calls");
}

#[rustfmt::skip]
#[test]
fn a_provider_state_does_not_end_with_thinking() {
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let thinking = json!({"type": "thinking", "thinking": "So.", "signature": "c2ln"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let ended = [json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}), json!({"type": "message_stop"})];
    let state = |events: &[Value]| line(WIRE, &sse(events)).split_once("length").unwrap().1.trim().to_owned();
    let blocks = |blocks: &[Value]| {
        let started = (0..).zip(blocks).map(|(index, it)| block(index, it.clone()));
        state(&started.chain(ended.clone()).collect::<Vec<_>>())
    };
    assert_eq!(blocks(&[thinking.clone(), text("\n\n")]), "");
    assert_eq!(blocks(&[thinking.clone(), text("Hm."), thinking.clone()]), json!([thinking, text("Hm.")]).to_string());
}

#[test]
fn a_call_that_the_state_does_not_name_is_written_as_well() {
    assert_eq!(names_in_a_state_with_one_call(WIRE), 3);
}
