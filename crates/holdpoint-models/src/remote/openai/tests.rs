//! Tests of the wire `/chat/completions`.

use super::*;
use crate::remote::tests::{
    Dice, FAILED, MALFORMED, MeantAnswer, MeantCall, Part, Position, Sample, StreamWriter, UNAVAILABLE, line,
    line_of, object_or_text, places, sse, state, written,
};

/// The wire in the tests of all wires.
pub(super) const SAMPLE: Sample = Sample {
    url: "http://127.0.0.1:9/v1/chat/completions",
    headers: &[("authorization", "Bearer k")],
    replaceable: &["stream_options"],
    errors: &[
        (r#"data: {"error":{"message":"no","code":"invalid"},"choices":[{}]}"#, FAILED),
        (r#"data: {"error":{"message":"no","code":502}}"#, UNAVAILABLE),
    ],
    unfinished_call: None,
    conversation,
    returns_state,
    streams: StreamWriter {
        has: |part| !matches!(part, Part::File(..)),
        write,
        finish,
        separates: false,
        done: Some("[DONE]"),
    },
    elsewhere,
};

#[rustfmt::skip]
fn conversation() -> Value {
    let function = json!({"name": "go", "arguments": r#"{"b":1,"a":2}"#});
    json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "x"}, {"role": "assistant", "content": "(no reply)"},
        {"role": "user", "content": "y"},
        {"role": "assistant", "content": "Hm.", "tool_calls": [
            {"id": "1", "type": "function", "function": function}, {"id": "a b", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": "done"}, {"role": "tool", "tool_call_id": "a b", "content": "done"},
    ], "tools": [stub()], "tool_choice": "none"})
}

/// Returns the stub of the tool that was called.
fn stub() -> Value {
    let parameters = json!({"type": "object", "properties": {}});
    json!({"type": "function", "function": {"name": "go", "description": "Not available now.", "parameters": parameters}})
}

#[rustfmt::skip]
fn returns_state() {
    let extra = json!({"google": {"thought_signature": "c2ln"}});
    let call = |index: u64, extra: Value| json!({"index": index, "function": {"name": "go", "arguments": "{}"}, "extra_content": extra});
    let choice = |delta: Value| json!({"choices": [{"delta": delta}]});
    let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
    let kept = state(WIRE, &sse(&[
        choice(json!({"reasoning_content": "So"})), choice(json!({"reasoning_content": "."})),
        choice(json!({"tool_calls": [call(0, extra.clone()), call(1, Value::Null)]})), end.clone(),
    ]));
    let assistant = &written(WIRE, kept)["messages"][4];
    assert_eq!((&assistant["reasoning_content"], &assistant["content"]), (&json!("So."), &json!("Hm.")));
    assert_eq!((&assistant["tool_calls"][0]["extra_content"], assistant["tool_calls"][1].get("extra_content")), (&extra, None));
    let detail = |text: &str| json!({"type": "reasoning.text", "text": text, "index": 0});
    let signed = json!({"type": "reasoning.text", "signature": "c2ln", "index": 0});
    let kept = state(WIRE, &sse(&[
        choice(json!({"reasoning": "So", "reasoning_details": [detail("So")]})), choice(json!({"reasoning_details": [detail(".")]})),
        choice(json!({"reasoning_details": [signed]})), choice(json!({"tool_calls": [call(0, Value::Null)]})), end,
    ]));
    let assistant = &written(WIRE, kept)["messages"][4];
    let whole = json!({"type": "reasoning.text", "text": "So.", "index": 0, "signature": "c2ln"});
    assert_eq!((&assistant["reasoning_details"], assistant.get("reasoning")), (&json!([whole]), None));
}

fn write(part: &Part, at: Position, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |delta: Value| events.push(json!({ "choices": [{ "index": 0, "delta": delta }] }));
    match part {
        Part::Text(text) => {
            dice.pieces(text).iter().for_each(|it| push(json!({ "role": "assistant", "content": it })));
        }
        Part::Reasoning(text) => {
            let field = ["reasoning_content", "reasoning"][dice.roll(2)];
            dice.pieces(text).iter().for_each(|it| push(json!({ field: it, "content": null })));
        }
        Part::Call { id, name, arguments } => {
            let wire_index = if dice.roll(3) == 0 { Value::Null } else { at.call.into() };
            // The id identifies the call if the piece has no index.
            let id = format!("{id}{}", at.call);
            let function = json!({ "name": name, "arguments": "" });
            push(json!({ "tool_calls": [{ "index": wire_index, "id": id, "function": function }] }));
            for piece in dice.pieces(&Value::from(arguments.clone()).to_string()) {
                let (id, name) =
                    if dice.roll(3) == 0 { (json!(id), json!(name)) } else { (json!(null), json!("")) };
                let function = json!({ "name": name, "arguments": piece });
                push(json!({ "tool_calls": [{ "index": wire_index, "id": id, "function": function }] }));
            }
        }
        Part::Source(url, title) => {
            let annotations =
                json!([{ "type": "url_citation", "url_citation": { "url": url, "title": title } }]);
            push(json!({ "annotations": annotations }));
        }
        Part::File(..) => {}
    }
}

fn finish(calls: bool, events: &mut Vec<Value>) {
    let reason = if calls { "tool_calls" } else { "stop" };
    events.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }));
    events.push(json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } }));
}

fn elsewhere(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
    let [text, reasoning, calls]: [[bool; 2]; 3] = [places(dice), places(dice), places(dice)];
    let field = ["reasoning_content", "reasoning"][dice.roll(2)];
    let mut deltas = Vec::new();
    if reasoning[0] {
        deltas.extend(dice.pieces(&meant.reasoning).into_iter().map(|piece| json!({ field: piece })));
    }
    if text[0] {
        deltas.extend(dice.pieces(&meant.text).into_iter().map(|piece| json!({ "content": piece })));
    }
    for (n, MeantCall { id, name, input }) in meant.calls.iter().enumerate().filter(|_| calls[0]) {
        let mut piece = |dice: &mut Dice, id: Value, name: Value, arguments: Value| {
            let index = if dice.roll(3) == 0 { json!(n.to_string()) } else { json!(n) };
            let function = json!({ "name": name, "arguments": arguments });
            deltas.push(json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] }));
        };
        piece(dice, json!(id), json!(name), json!(""));
        let whole = input.to_string();
        // Some servers write an empty object first.
        let begun = if dice.roll(3) == 0 { format!("{{}}{whole}") } else { whole.clone() };
        for cut in dice.pieces(&begun) {
            piece(dice, json!(null), json!(null), json!(cut));
        }
        if dice.roll(3) == 0 {
            // The call is summarized at its end, by some servers as text within text.
            let again = if dice.roll(2) == 0 { whole } else { json!(whole).to_string() };
            let function = json!({ "name": name, "arguments": again });
            deltas.push(json!({ "tool_calls": [{ "index": n, "id": id, "function": function }] }));
        }
    }
    let usage = json!({ "prompt_tokens": 3.0, "completion_tokens": 4 });
    let mut events: Vec<_> = deltas
        .into_iter()
        .map(|delta| {
            // An early reason says nothing.
            let early = if dice.roll(4) == 0 { json!("stop") } else { json!(null) };
            json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": early }], "usage": null })
        })
        .collect();
    let mut message = json!({ "role": "assistant" });
    if text[1] {
        message["content"] = json!(meant.text);
    }
    if reasoning[1] {
        message[field] = json!(meant.reasoning);
    }
    if calls[1] {
        let call = |MeantCall { id, name, input }: &MeantCall| {
            let function = json!({ "name": name, "arguments": object_or_text(input, dice) });
            json!({ "id": id, "type": "function", "function": function })
        };
        message["tool_calls"] = meant.calls.iter().map(call).collect();
    }
    for _ in 0..=dice.roll(2) {
        let reason = meant.reason("stop", "tool_calls");
        let mut last = json!({ "index": 0, "message": message, "finish_reason": reason });
        if dice.roll(2) == 0 {
            last["delta"] = json!({});
        }
        if dice.roll(2) == 0 {
            last["usage"] = usage.clone();
        }
        events.push(json!({ "object": "chat.completion", "choices": [last] }));
    }
    events.push(json!({ "choices": [], "usage": usage }));
    events.iter().map(Value::to_string).collect()
}

/// Returns a chat answer of call pieces (`index,id,name,arguments` each), of finish reasons and of JSON.
#[rustfmt::skip]
fn chat(events: &str) -> String {
    let events = events.split(' ').map(|event| match *event.split(',').collect::<Vec<_>>() {
        _ if event.starts_with(['{', '[']) => format!("data: {event}\n\n"),
        [index, id, name, arguments] => format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [
            {"index": index.parse::<u64>().ok(), "id": id, "function": {"name": name, "arguments": arguments}}]}}]})),
        _ => format!("data: {}\n\n", json!({"choices": [{"delta": {}, "finish_reason": event}]})),
    });
    line(WIRE, &events.collect::<String>())
}

#[rustfmt::skip]
#[test]
fn deltas_of_chat_calls_are_assigned_to_the_right_call() {
    for (events, expected) in [
        (r#"0,a,go,{"n": 0,,,1} 1,,go,{} tool_calls {"choices":[],"usage":{"completion_tokens":7}} [DONE]"#,
            r#"<0 go#a 0:{"n": 0:1} <1 go# 1:{} 0> 1> tool-calls 0/7"#.to_owned()),
        (r#",a,go, ,,,{"n": ,,,1} ,b,go,{} tool_calls"#, r#"<0 go#a 0:{"n": 0:1} <1 go#b 1:{} 0> 1> tool-calls"#.to_owned()),
        (r#"0,a,go, 0,b,,{"n":1} 1,a,go,{} stop"#, r#"<0 go#a 0:{"n":1} <1 go#a 1:{} 0> 1> stop"#.to_owned()),
        ("0,a,go,{} 0,b,go,{} tool_calls", "<0 go#a 0:{} <1 go#b 1:{} 0> 1> tool-calls".to_owned()),
        ("0,a,go, 0,a,_on,{} tool_calls", format!("<0 go#a {MALFORMED}a call has two names")),
        ("0,a,,{} tool_calls", format!("{MALFORMED}arguments of a call that has no name")),
        ("0,a,go,{ [DONE]", format!("<0 go#a {MALFORMED}it broke off before its end")),
        ("tool_calls [DONE]", format!("{MALFORMED}it ended with tool calls and made none")),
    ] {
        assert_eq!(chat(events), expected);
    }
}

#[rustfmt::skip]
#[test]
fn variants_of_the_chat_wire_from_some_servers_are_read() {
    for (data, expected) in [
        (r#"{"choices":[{"delta":{"content":"Hm."},"message":{"content":"Hm."},"finish_reason":"stop"}]}"#, "Hm. stop"),
        (r#"{"choices":[{"delta":{"content":"Hm."},"message":null,"finish_reason":"stop"}]}"#, "Hm. stop"),
        (r#"{"choices":[{"message":{"content":"Hm."},"finish_reason":"model_length"}]}"#, "Hm. length"),
        (r#"{"choices":[{"delta":{"reasoning_content":"","reasoning":"So."},"finish_reason":"stop"}]}"#, r#"(So.) stop {"message":{"reasoning":"So."}}"#),
        (r#"{"choices":[{"delta":{"reasoning_content":null,"content":"Hm."},"finish_reason":"stop"}]}"#, r#"Hm. stop {"message":{"reasoning_content":""}}"#),
        (r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"So."}]},{"type":"text","text":"Hm."}]},"finish_reason":"stop"}]}"#, "(So.) Hm. stop"),
    ] {
        assert_eq!(line(WIRE, &format!("data: {data}\n\n")), expected);
    }
    assert_eq!(chat("0,,go,{} 0,,go,{} tool_calls"), "<0 go# 0:{} <1 go# 1:{} 0> 1> tool-calls");
}

#[rustfmt::skip]
#[test]
fn rare_events_of_the_chat_wire_are_read() {
    let read = |events: &[&str]| line_of(WIRE, events);
    let (hm, stop) = (r#"{"choices":[{"delta":{"content":"Hm."}}]}"#, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#);
    let ends = |reason: &str| read(&[hm, &stop.replace("stop", reason)]);
    assert_eq!(ends("content_filter"), "Hm. content-filter");
    assert_eq!(ends("error"), format!("Hm. {FAILED}it ended its answer with an error"));
    assert_eq!(ends("insufficient_system_resource"), format!("Hm. {UNAVAILABLE}insufficient_system_resource"));
    assert_eq!(ends(""), format!("Hm. {MALFORMED}it broke off before its end"));
    assert_eq!(chat("0,a,go,{} function_call"), "<0 go#a 0:{} 0> tool-calls");
    assert_eq!(read(&[hm, stop, "[DONE]", hm]), "Hm. stop");
    assert_eq!(read(&[hm, &hm.replace(r#"{"delta""#, r#"{"index":1,"delta""#), stop]), "Hm. stop");
    assert_eq!(read(&[r#"{"choices":[{"delta":{"refusal":"No."}}]}"#, stop]), "No. stop");
    let error = read(&[r#"{"object":"error","message":"no"}"#]);
    assert_eq!(error, format!("{FAILED}error in the stream: no"));
    for error in ["null", "false", r#""""#, "{}"] {
        assert_eq!(read(&[&format!(r#"{{"error":{error},"choices":[]}}"#), hm, stop]), "Hm. stop", "{error}");
    }
    let (first, last) = (r#"{"usage":{"prompt_tokens":3,"completion_tokens":1}}"#, r#"{"usage":{"completion_tokens":2}}"#);
    assert_eq!(read(&[hm, first, first, last, stop]), "Hm. stop 3/2", "what counts up is not added");

    let piece = |piece: &str| format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{piece}]}}}}]}}"#);
    let whole = piece(r#"{"function":{"name":"go","arguments":{"n":1}}}"#);
    assert_eq!(read(&[&whole, stop]), r#"<0 go# 0:{"n":1} 0> stop"#);
    let signed = piece(r#"{"index":0,"function":{"name":"go","arguments":"{"},"extra_content":{"s":1}}"#);
    let more = piece(r#"{"index":0,"function":{"arguments":"}"},"extra_content":null}"#);
    assert_eq!(read(&[&signed, &more, stop]), r#"<0 go# 0:{} 0> stop {"calls":[{"extra_content":{"s":1}}]}"#);
    assert_eq!(chat("0,a,go,{} 0,b,go,{ 0,,,} stop"), "<0 go#a 0:{} <1 go#b 1:{} 0> 1> stop");
    assert_eq!(chat(",a,go,{ ,b,go, ,a,,} ,b,,{} stop"), "<0 go#a 0:{ <1 go#b 0:} 1:{} 0> 1> stop");
    assert_eq!(chat("0,,go,{ 0,,go,} stop"), "<0 go# 0:{} 0> stop", "a name that is repeated begins nothing");
    assert_eq!(chat("0,,go, 0,a,go, 0,b,go,{} stop"), "<0 go# <1 go#b 1:{} 0> 1> stop", "an id that comes late");

    let detail = |detail: &str| format!(r#"{{"choices":[{{"delta":{{"reasoning_details":[{detail}]}}}}]}}"#);
    let (one, two) = (detail(r#"{"index":0,"text":"a","signature":"s"}"#), detail(r#"{"index":1,"text":"b"}"#));
    let nulls = detail(r#"{"index":0,"text":"c","signature":null}"#);
    let state = r#"Hm. stop {"message":{"reasoning_details":[{"index":0,"text":"ac","signature":"s"},{"index":1,"text":"b"}]}}"#;
    assert_eq!(read(&[hm, &one, &nulls, &two, stop]), state);
}
