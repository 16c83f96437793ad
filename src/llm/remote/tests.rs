//! Tests of the readers with given bytes, and of the writers with given conversations.

use super::*;
use crate::llm::{ModelCall, ModelMessage, Speaker};
use serde_json::json;
use std::fmt::Write as _;

/// The result of reading a stream.
#[derive(Debug, PartialEq)]
pub(super) struct Read {
    pub(super) events: Vec<ModelEvent>,
    pub(super) error: Option<String>,
}

thread_local! {
    static RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
}

/// Reads these chunks as a response on this wire.
pub(super) fn read(wire: Wire, pieces: Vec<Bytes>) -> Read {
    let told = events(wire, stream::iter(pieces).map(Ok)).collect::<Vec<_>>();
    let told = RUNTIME.with(|runtime| runtime.block_on(told));
    let mut read = Read { events: Vec::new(), error: None };
    for event in told {
        match event {
            // No item follows an error, so this is the only one.
            Err(error) => read.error = Some(error.to_string()),
            Ok(ModelEvent::Alive) => {}
            Ok(event) => read.events.push(event),
        }
    }
    read
}

/// Returns the events as one line: text as it is, `<n` for the start of call n, `n:` for its arguments, `n>`
/// for its end.
fn line(wire: Wire, text: &str) -> String {
    let read = read(wire, vec![Bytes::copy_from_slice(text.as_bytes())]);
    let mut line = String::new();
    for event in &read.events {
        let _infallible = match event {
            ModelEvent::Alive => Ok(()),
            ModelEvent::Text(text) => write!(line, "{text} "),
            ModelEvent::Reasoning(text) => write!(line, "({text}) "),
            ModelEvent::Source { url, title } => {
                write!(line, "[{url} {}] ", title.as_deref().unwrap_or_default())
            }
            ModelEvent::File { media_type, data } => write!(line, "[{media_type} {data:?}] "),
            ModelEvent::CallStarted { index, provider_call_id, tool_name } => {
                write!(line, "<{index} {tool_name}#{provider_call_id} ")
            }
            ModelEvent::CallArguments { index, delta } => write!(line, "{index}:{delta} "),
            ModelEvent::CallFinished { index } => write!(line, "{index}> "),
            ModelEvent::Finished { reason, usage, provider_state } => {
                let usage = usage.map(|it| format!(" {}/{}", it.input_tokens, it.output_tokens));
                let state = provider_state.as_ref().map(|state| format!(" {state}"));
                write!(line, "{}{}{}", reason.as_str(), usage.unwrap_or_default(), state.unwrap_or_default())
            }
        };
    }
    line.push_str(&read.error.unwrap_or_default());
    line
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
    line(Wire::OpenAiChat, &events.collect::<String>())
}

#[rustfmt::skip]
#[test]
fn deltas_of_chat_calls_are_assigned_to_the_right_call() {
    const MALFORMED: &str = "the model's server sent a malformed answer:";
    for (events, told) in [
        (r#"0,a,go,{"n": 0,,,1} 1,,go,{} tool_calls {"choices":[],"usage":{"completion_tokens":7}} [DONE]"#,
            r#"<0 go#a 0:{"n": 0:1} <1 go# 1:{} 0> 1> tool-calls 0/7"#.to_owned()),
        (r#",a,go, ,,,{"n": ,,,1} ,b,go,{} tool_calls"#, r#"<0 go#a 0:{"n": 0:1} <1 go#b 1:{} 0> 1> tool-calls"#.to_owned()),
        (r#"0,a,go, 0,b,,{"n":1} 1,a,go,{} stop"#, r#"<0 go#a 0:{"n":1} <1 go#a 1:{} 0> 1> stop"#.to_owned()),
        ("0,a,go,{} 0,b,go,{} tool_calls", "<0 go#a 0:{} <1 go#b 1:{} 0> 1> tool-calls".to_owned()),
        ("0,a,go, 0,a,_on,{} tool_calls", format!("<0 go#a {MALFORMED} a call has two names")),
        ("0,a,,{} tool_calls", format!("{MALFORMED} arguments of a call that has no name")),
        ("0,a,go,{ [DONE]", format!("<0 go#a 0:{{ {MALFORMED} it broke off before its end")),
        ("tool_calls [DONE]", format!("{MALFORMED} it ended with tool calls and made none")),
    ] {
        assert_eq!(chat(events), told);
    }
}

#[rustfmt::skip]
#[test]
fn errors_in_a_stream_are_classified_by_whether_a_retry_may_help() {
    let error = |wire, data: &str| line(wire, &format!("{data}\n\n"));
    for (told, starts) in [
        (error(Wire::OpenAiChat, r#"data: {"error":{"message":"no","code":"invalid"},"choices":[{}]}"#), "the model's server failed: "),
        (error(Wire::OpenAiChat, r#"data: {"error":{"message":"no","code":502}}"#), "the model's server is unavailable: "),
        (error(Wire::Anthropic, r#"data: {"type":"error","error":{"type":"overloaded_error","message":"no"}}"#), "the model's server is unavailable: "),
        (error(Wire::Anthropic, r#"data: {"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#), "the model's server failed: "),
        (error(Wire::OpenAiResponses, r#"data: {"type":"response.failed","response":{"error":{"code":"server_error","message":"no"}}}"#), "the model's server is unavailable: "),
        (error(Wire::OpenAiResponses, r#"data: {"type":"error","code":"bad","message":"no"}"#), "the model's server failed: "),
        (error(Wire::Gemini, r#"data: {"error":{"code":503,"status":"UNAVAILABLE","message":"no"}}"#), "the model's server is unavailable: "),
        (error(Wire::Ollama, r#"{"error":"no"}"#), "the model's server failed: "),
    ] {
        assert_eq!(told, format!("{starts}error in the stream: no"));
    }
}

#[rustfmt::skip]
fn conversation(speaker: Speaker) -> ModelRequest {
    let call = |id: &str| ModelCall { id: id.into(), tool_name: "go".into(), input: json!({"b": 1, "a": 2}).as_object().cloned().unwrap() };
    let tool = |id: &str| ModelMessage::Tool { call_id: id.into(), tool_name: "go".into(), text: "done".into() };
    let said = ModelMessage::Assistant { text: "Hm.".into(), calls: vec![call("1"), call("a b")], speaker };
    let user = |text: &str| ModelMessage::User(text.into());
    ModelRequest { system: Some("s".into()), messages: vec![user("x"), user("y"), said, tool("1"), tool("a b")], tools: vec![] }
}

fn written(wire: Wire, provider_state: Option<Value>) -> Value {
    Value::Object(wire.body("m", &conversation(Speaker::Same { provider_state })))
}

#[rustfmt::skip]
#[test]
fn a_conversation_is_written_in_the_format_of_each_wire() {
    let (input, text) = (json!({"b": 1, "a": 2}), r#"{"b":1,"a":2}"#);
    let function = json!({"name": "go", "arguments": text});
    assert_eq!(written(Wire::OpenAiChat, None), json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "x"}, {"role": "user", "content": "y"},
        {"role": "assistant", "content": "Hm.", "tool_calls": [
            {"id": "1", "type": "function", "function": function}, {"id": "a b", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": "done"}, {"role": "tool", "tool_call_id": "a b", "content": "done"},
    ]}));
    let id = conversation::id_for("a b", &Speaker::Another, conversation::Ids::Plain);
    assert_eq!(written(Wire::OpenAiResponses, None), json!({"model": "m", "stream": true, "store": false,
        "include": ["reasoning.encrypted_content"], "instructions": "s", "input": [
        {"role": "user", "content": "x"}, {"role": "user", "content": "y"}, {"role": "assistant", "content": "Hm."},
        {"type": "function_call", "call_id": "1", "name": "go", "arguments": text},
        {"type": "function_call", "call_id": id, "name": "go", "arguments": text},
        {"type": "function_call_output", "call_id": "1", "output": "done"},
        {"type": "function_call_output", "call_id": id, "output": "done"},
    ]}));
    assert_eq!(written(Wire::Anthropic, None), json!({"model": "m", "max_tokens": 8192, "stream": true, "system": "s", "messages": [
        {"role": "user", "content": "x"}, {"role": "user", "content": "y"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hm."},
            {"type": "tool_use", "id": "1", "name": "go", "input": input}, {"type": "tool_use", "id": id, "name": "go", "input": input}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "done"},
            {"type": "tool_result", "tool_use_id": id, "content": "done"}]},
    ], "tools": [{"name": "go", "input_schema": {"type": "object"}}], "tool_choice": {"type": "none"}}));
    let answer = |id: &str| json!({"functionResponse": {"id": id, "name": "go", "response": {"result": "done"}}});
    assert_eq!(written(Wire::Gemini, None), json!({"systemInstruction": {"parts": [{"text": "s"}]}, "contents": [
        {"role": "user", "parts": [{"text": "x"}]}, {"role": "user", "parts": [{"text": "y"}]},
        {"role": "model", "parts": [{"text": "Hm."}, {"functionCall": {"id": "1", "name": "go", "args": input}},
            {"functionCall": {"id": "a b", "name": "go", "args": input}}]},
        {"role": "user", "parts": [answer("1"), answer("a b")]},
    ]}));
    assert_eq!(written(Wire::Ollama, None), json!({"model": "m", "stream": true, "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "x"}, {"role": "user", "content": "y"},
        {"role": "assistant", "content": "Hm.", "tool_calls": [
            {"id": "1", "function": {"name": "go", "arguments": input}}, {"id": "a b", "function": {"name": "go", "arguments": input}}]},
        {"role": "tool", "content": "done", "tool_name": "go", "tool_call_id": "1"},
        {"role": "tool", "content": "done", "tool_name": "go", "tool_call_id": "a b"},
    ]}));
}

#[rustfmt::skip]
#[test]
fn provider_state_returns_to_the_server_at_its_position() {
    let sse = |events: &[Value]| events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>();
    let state = |wire, stream: &str| {
        let read = read(wire, vec![Bytes::copy_from_slice(stream.as_bytes())]);
        let Some(ModelEvent::Finished { provider_state, .. }) = read.events.last().cloned() else { panic!("{read:?}") };
        provider_state
    };

    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let kept = state(Wire::Anthropic, &sse(&[
        block(0, json!({"type": "thinking", "thinking": ""})), delta(0, json!({"thinking": "Let "})), delta(0, json!({"thinking": "me."})),
        delta(0, json!({"signature": "c2ln"})), block(1, json!({"type": "redacted_thinking", "data": "ZGF0YQ"})),
        block(2, json!({"type": "text", "text": "Hm."})), block(3, json!({"type": "tool_use", "id": "1", "name": "go"})),
        block(4, json!({"type": "tool_use", "id": "a b", "name": "go"})),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}), json!({"type": "message_stop"}),
    ]));
    let content = &written(Wire::Anthropic, kept)["messages"][2]["content"];
    assert_eq!(content[0], json!({"type": "thinking", "thinking": "Let me.", "signature": "c2ln"}));
    assert_eq!(content[1], json!({"type": "redacted_thinking", "data": "ZGF0YQ"}));
    assert_eq!((&content[2]["text"], &content[3]["id"], &content[4]["name"]), (&json!("Hm."), &json!("1"), &json!("go")));
    assert_eq!(content.as_array().unwrap().len(), 5);

    let parts = |parts: Value| json!({"candidates": [{"content": {"parts": parts}}]});
    let kept = state(Wire::Gemini, &sse(&[
        parts(json!([{"text": "So.", "thought": true}])), parts(json!([{"text": "H"}])), parts(json!([{"text": "m."}])),
        parts(json!([{"functionCall": {"name": "go"}, "thoughtSignature": "c2ln"}, {"functionCall": {"name": "go"}}])),
        parts(json!([{"text": "", "thoughtSignature": "ZW5k"}])), json!({"candidates": [{"finishReason": "STOP"}]}),
    ]));
    let said = &written(Wire::Gemini, kept)["contents"][2]["parts"];
    assert_eq!(said[0], json!({"text": "Hm."}));
    assert_eq!((&said[1]["thoughtSignature"], &said[1]["functionCall"]["id"]), (&json!("c2ln"), &json!("1")));
    assert_eq!((said[2].get("thoughtSignature"), &said[2]["functionCall"]["id"]), (None, &json!("a b")));
    assert_eq!(said[3], json!({"text": "", "thoughtSignature": "ZW5k"}));

    let item = |index: u64, item: Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"});
    let message = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Hm.", "annotations": []}]});
    let call = |id: &str| json!({"type": "function_call", "id": id, "call_id": "c", "name": "go", "arguments": "{}"});
    let kept = state(Wire::OpenAiResponses, &sse(&[
        item(0, reasoning.clone()), item(1, message.clone()),
        item(2, call("fc_1")), item(3, call("fc_2")), json!({"type": "response.completed"}),
    ]));
    let input = &written(Wire::OpenAiResponses, kept)["input"];
    assert_eq!(input[2], reasoning);
    assert_eq!(input[3], message);
    assert_eq!((&input[4]["id"], &input[4]["call_id"], &input[5]["id"]), (&json!("fc_1"), &json!("1"), &json!("fc_2")));

    let extra = json!({"google": {"thought_signature": "c2ln"}});
    let call = |index: u64, extra: Value| json!({"index": index, "function": {"name": "go", "arguments": "{}"}, "extra_content": extra});
    let choice = |delta: Value| json!({"choices": [{"delta": delta}]});
    let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
    let kept = state(Wire::OpenAiChat, &sse(&[
        choice(json!({"reasoning_content": "So"})), choice(json!({"reasoning_content": "."})),
        choice(json!({"tool_calls": [call(0, extra.clone()), call(1, Value::Null)]})), end.clone(),
    ]));
    let said = &written(Wire::OpenAiChat, kept)["messages"][3];
    assert_eq!((&said["reasoning_content"], &said["content"]), (&json!("So."), &json!("Hm.")));
    assert_eq!((&said["tool_calls"][0]["extra_content"], said["tool_calls"][1].get("extra_content")), (&extra, None));
    let detail = |text: &str| json!({"type": "reasoning.text", "text": text, "index": 0});
    let signed = json!({"type": "reasoning.text", "signature": "c2ln", "index": 0});
    let kept = state(Wire::OpenAiChat, &sse(&[
        choice(json!({"reasoning": "So", "reasoning_details": [detail("So")]})), choice(json!({"reasoning_details": [detail(".")]})),
        choice(json!({"reasoning_details": [signed]})), choice(json!({"tool_calls": [call(0, Value::Null)]})), end,
    ]));
    let said = &written(Wire::OpenAiChat, kept)["messages"][3];
    let whole = json!({"type": "reasoning.text", "text": "So.", "index": 0, "signature": "c2ln"});
    assert_eq!((&said["reasoning_details"], said.get("reasoning")), (&json!([whole]), None));

    let thought = json!({"message": {"thinking": "So.", "tool_calls": [{"function": {"name": "go"}}]}, "done": true});
    assert_eq!(written(Wire::Ollama, state(Wire::Ollama, &thought.to_string()))["messages"][3]["thinking"], "So.");
}

#[test]
fn calls_of_another_model_get_ids_and_names_that_this_model_accepts() {
    let call = |id: &str, name: &str| ModelCall { id: id.into(), tool_name: name.into(), input: Map::new() };
    let ids = ["toolu_1", "functions.go:0", &"x".repeat(41), ""];
    let names = ["delete_file-2", "functions.delete file", &"x".repeat(99), ""];
    let calls: Vec<_> = ids.iter().zip(names).map(|(id, name)| call(id, name)).collect();
    let told = |speaker| {
        let said = ModelMessage::Assistant { text: String::new(), calls: calls.clone(), speaker };
        let answers = calls.iter().map(|call| ModelMessage::Tool {
            call_id: call.id.clone(),
            tool_name: call.tool_name.clone(),
            text: "done".into(),
        });
        let messages: Vec<_> = std::iter::once(said).chain(answers).collect();
        let entries = conversation::entries(&messages, conversation::Ids::Own);
        let [conversation::Entry::Step(step)] = &entries[..] else { panic!("one step") };
        let ids: Vec<String> = step.calls.iter().map(|call| call.id.to_string()).collect();
        let answered: Vec<String> = step.answers.iter().map(|answer| answer.id.to_string()).collect();
        assert_eq!(ids, answered);
        let names: Vec<String> = step.calls.iter().map(|call| call.name.to_string()).collect();
        (ids, names)
    };
    let fitting = ["delete_file-2", "functions_delete_file", &"x".repeat(64), "_"];
    let (own, names) = told(Speaker::Same { provider_state: None });
    assert_eq!((own, names), (ids.map(str::to_owned).to_vec(), fitting.map(str::to_owned).to_vec()));
    let (foreign, names) = told(Speaker::Another);
    assert_eq!((foreign[0].as_str(), names), ("toolu_1", fitting.map(str::to_owned).to_vec()));
    for id in &foreign[1..] {
        assert!(id.len() == 37 && id.starts_with("call_"), "{id}");
    }
    assert!(foreign[1] != foreign[2] && foreign[2] != foreign[3]);

    let call = |model: &str, speaker| {
        Wire::Gemini.body(model, &conversation(speaker))["contents"][2]["parts"].clone()
    };
    let unsigned = json!("skip_thought_signature_validator");
    let parts = call("gemini-3", Speaker::Another);
    assert_eq!((&parts[1]["thoughtSignature"], parts[2].get("thoughtSignature")), (&unsigned, None));
    assert_eq!(call("gemini-2.5", Speaker::Another)[1].get("thoughtSignature"), None);
}

#[rustfmt::skip]
#[test]
fn a_provider_state_contains_nothing_that_the_server_refuses_and_hides_no_call() {
    let sse = |events: &[Value]| events.iter().map(|event| format!("data: {event}\n\n")).collect::<String>();
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let thinking = json!({"type": "thinking", "thinking": "So.", "signature": "c2ln"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let ended = [json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}), json!({"type": "message_stop"})];
    let state = |wire, events: &[Value]| line(wire, &sse(events)).split_once("length").unwrap().1.trim().to_owned();
    let blocks = |blocks: &[Value]| {
        let begun = (0..).zip(blocks).map(|(index, it)| block(index, it.clone()));
        state(Wire::Anthropic, &begun.chain(ended.clone()).collect::<Vec<_>>())
    };
    // Thinking at the end of an answer.
    assert_eq!(blocks(&[thinking.clone(), text("\n\n")]), "");
    assert_eq!(blocks(&[thinking.clone(), text("Hm."), thinking.clone()]), json!([thinking, text("Hm.")]).to_string());

    let done = |index: u64, item: Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "ZW5j"});
    let message = json!({"type": "message", "role": "assistant", "phase": "commentary", "content": []});
    let cut = json!({"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}});
    let items = |items: &[Value]| state(Wire::OpenAiResponses, &[items, std::slice::from_ref(&cut)].concat());
    assert_eq!(items(&[done(0, message.clone()), done(1, reasoning)]), json!([message]).to_string());

    // A call that the state does not name is written as well.
    let kept = Some(json!([{"type": "thinking"}, {"call": 1, "id": "x"}]));
    for (wire, named) in [(Wire::Anthropic, 3), (Wire::OpenAiResponses, 2), (Wire::Gemini, 4)] {
        let body = written(wire, kept.clone()).to_string();
        assert_eq!(body.matches(r#""name":"go""#).count(), named, "{body}");
    }
}

#[rustfmt::skip]
#[test]
fn unfinished_calls_are_not_emitted_as_complete() {
    let begun = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "go"}});
    let ended = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
    assert_eq!(line(Wire::Anthropic, &format!("data: {begun}\n\ndata: {ended}\n\n")), "<0 go#a tool-calls");
    let added = json!({"type": "response.output_item.added", "item": {"type": "function_call", "call_id": "a", "name": "go"}});
    let ended = json!({"type": "response.completed"});
    assert_eq!(line(Wire::OpenAiResponses, &format!("data: {added}\n\ndata: {ended}\n\n")), "<0 go#a tool-calls");
}

#[rustfmt::skip]
#[test]
fn variants_of_the_chat_wire_from_some_servers_are_read() {
    for (data, told) in [
        (r#"{"choices":[{"delta":{"content":"Hm."},"message":{"content":"Hm."},"finish_reason":"stop"}]}"#, "Hm. stop"),
        (r#"{"choices":[{"delta":{"content":"Hm."},"message":null,"finish_reason":"stop"}]}"#, "Hm. stop"),
        (r#"{"choices":[{"message":{"content":"Hm."},"finish_reason":"model_length"}]}"#, "Hm. length"),
        (r#"{"choices":[{"delta":{"reasoning_content":"","reasoning":"So."},"finish_reason":"stop"}]}"#, r#"(So.) stop {"message":{"reasoning":"So."}}"#),
        (r#"{"choices":[{"delta":{"reasoning_content":null,"content":"Hm."},"finish_reason":"stop"}]}"#, r#"Hm. stop {"message":{"reasoning_content":""}}"#),
        (r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"So."}]},{"type":"text","text":"Hm."}]},"finish_reason":"stop"}]}"#, "(So.) Hm. stop"),
    ] {
        assert_eq!(line(Wire::OpenAiChat, &format!("data: {data}\n\n")), told);
    }
    assert_eq!(chat("0,,go,{} 0,,go,{} tool_calls"), "<0 go# 0:{} <1 go# 1:{} 0> 1> tool-calls");
}

/// Returns the line that is read from these events.
fn told(wire: Wire, events: &[&str]) -> String {
    let framed = events.iter().map(|event| match wire {
        Wire::Ollama => format!("{event}\n"),
        _ => format!("data: {event}\n\n"),
    });
    line(wire, &framed.collect::<String>())
}

const FAILED: &str = "the model's server failed: ";
const NOT_NOW: &str = "the model's server is unavailable: ";
const MALFORMED: &str = "the model's server sent a malformed answer: ";

#[rustfmt::skip]
#[test]
fn rare_events_of_the_chat_wire_are_read() {
    let told = |events: &[&str]| told(Wire::OpenAiChat, events);
    let (hm, stop) = (r#"{"choices":[{"delta":{"content":"Hm."}}]}"#, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#);
    let ends = |reason: &str| told(&[hm, &stop.replace("stop", reason)]);
    assert_eq!(ends("content_filter"), "Hm. content-filter");
    assert_eq!(ends("error"), format!("Hm. {FAILED}it ended its answer with an error"));
    assert_eq!(ends("insufficient_system_resource"), format!("Hm. {NOT_NOW}insufficient_system_resource"));
    assert_eq!(ends(""), format!("Hm. {MALFORMED}it broke off before its end"));
    assert_eq!(chat("0,a,go,{} function_call"), "<0 go#a 0:{} 0> tool-calls");
    assert_eq!(told(&[hm, stop, "[DONE]", hm]), "Hm. stop");
    assert_eq!(told(&[hm, &hm.replace(r#"{"delta""#, r#"{"index":1,"delta""#), stop]), "Hm. stop");
    assert_eq!(told(&[r#"{"choices":[{"delta":{"refusal":"No."}}]}"#, stop]), "No. stop");
    let error = told(&[r#"{"object":"error","message":"no"}"#]);
    assert_eq!(error, format!("{FAILED}error in the stream: no"));
    for error in ["null", "false", r#""""#, "{}"] {
        assert_eq!(told(&[&format!(r#"{{"error":{error},"choices":[]}}"#), hm, stop]), "Hm. stop", "{error}");
    }
    let (first, last) = (r#"{"usage":{"prompt_tokens":3,"completion_tokens":1}}"#, r#"{"usage":{"completion_tokens":2}}"#);
    assert_eq!(told(&[first, first, last, stop]), "stop 3/2", "what counts up is not added");

    let piece = |piece: &str| format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{piece}]}}}}]}}"#);
    let whole = piece(r#"{"function":{"name":"go","arguments":{"n":1}}}"#);
    assert_eq!(told(&[&whole, stop]), r#"<0 go# 0:{"n":1} 0> stop"#);
    let signed = piece(r#"{"index":0,"function":{"name":"go","arguments":"{"},"extra_content":{"s":1}}"#);
    let more = piece(r#"{"index":0,"function":{"arguments":"}"},"extra_content":null}"#);
    assert_eq!(told(&[&signed, &more, stop]), r#"<0 go# 0:{ 0:} 0> stop {"calls":[{"s":1}]}"#);
    assert_eq!(chat("0,a,go,{} 0,b,go,{ 0,,,} stop"), "<0 go#a 0:{} <1 go#b 1:{ 1:} 0> 1> stop");
    assert_eq!(chat(",a,go,{ ,b,go, ,a,,} ,b,,{} stop"), "<0 go#a 0:{ <1 go#b 0:} 1:{} 0> 1> stop");
    assert_eq!(chat("0,,go,{ 0,,go,} stop"), "<0 go# 0:{ 0:} 0> stop", "a name that is repeated begins nothing");
    assert_eq!(chat("0,,go, 0,a,go, 0,b,go,{} stop"), "<0 go# <1 go#b 1:{} 0> 1> stop", "an id that comes late");

    let detail = |detail: &str| format!(r#"{{"choices":[{{"delta":{{"reasoning_details":[{detail}]}}}}]}}"#);
    let (one, two) = (detail(r#"{"index":0,"text":"a","signature":"s"}"#), detail(r#"{"index":1,"text":"b"}"#));
    let nulls = detail(r#"{"index":0,"text":"c","signature":null}"#);
    let state = r#"stop {"message":{"reasoning_details":[{"index":0,"text":"ac","signature":"s"},{"index":1,"text":"b"}]}}"#;
    assert_eq!(told(&[&one, &nulls, &two, stop]), state);
}

#[rustfmt::skip]
#[test]
fn finish_reasons_and_token_counts_of_the_other_wires_are_read() {
    let anthropic = |events: &[&str]| told(Wire::Anthropic, events);
    let block = |block: &str| format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
    let ends = |reason: &str| format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}}}}"#);
    let words = block(r#"{"type":"text","text":"Hm."}"#);
    for (reason, told) in [("stop_sequence", "stop"), ("model_context_window_exceeded", "length"), ("refusal", "content-filter")] {
        assert_eq!(anthropic(&[&words, &ends(reason)]), format!("Hm. {told}"));
    }
    assert_eq!(anthropic(&[&words, &words]), format!("Hm. {MALFORMED}block 0 begins twice"));
    assert_eq!(anthropic(&[r#"{"type":"error"}"#]), format!("{FAILED}error in the stream: no message"));
    let over = r#"{"type":"message_stop"}"#;
    assert_eq!(anthropic(&[&words, &ends("end_turn"), over, &words]), "Hm. stop");
    let usage = r#"{"input_tokens":10,"cache_creation_input_tokens":2,"cache_read_input_tokens":3,"output_tokens":1}"#;
    let start = format!(r#"{{"type":"message_start","message":{{"usage":{usage}}}}}"#);
    for last in [usage.to_owned(), r#"{"output_tokens":1}"#.into(), r#"{"input_tokens":0,"output_tokens":1}"#.into()] {
        let end = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{last}}}"#);
        assert_eq!(anthropic(&[&start, &end]), "stop 15/1", "{last}");
    }
    let call = block(r#"{"type":"tool_use","id":"a","name":"go","input":{"n":1}}"#);
    let piece = r#"{"type":"content_block_delta","index":0,"delta":{"partial_json":"{}"}}"#;
    let stop = r#"{"type":"content_block_stop","index":0}"#;
    assert_eq!(anthropic(&[&call, stop, &ends("tool_use")]), r#"<0 go#a 0:{"n":1} 0> tool-calls"#);
    assert_eq!(anthropic(&[&call, piece, stop, &ends("tool_use")]), "<0 go#a 0:{} 0> tool-calls");

    let responses = |events: &[&str]| told(Wire::OpenAiResponses, events);
    let end = r#"{"type":"response.completed"}"#;
    let refusal = r#"{"type":"response.refusal.delta","delta":"No."}"#;
    assert_eq!(responses(&[refusal, end, refusal]), "No. stop");
    let filtered = r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#;
    assert_eq!(responses(&[filtered]), "content-filter");
    assert_eq!(responses(&["[DONE]"]), format!("{MALFORMED}it broke off before its end"));
    let (part, thought) = (r#"{"type":"response.reasoning_summary_part.added"}"#, r#"{"type":"response.reasoning_summary_text.delta","delta":"So."}"#);
    assert_eq!(responses(&[part, thought, part, thought, end]), "(So.) (\n\n) (So.) stop");
    let item = r#"{"type":"function_call","call_id":"a","name":"go","arguments":"{}"}"#;
    let (added, done) = ["added", "done"].map(|what| format!(r#"{{"type":"response.output_item.{what}","item":{item}}}"#)).into();
    let delta = r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#;
    assert_eq!(responses(&[&added, delta, &done, end]), "<0 go#a 0:{} 0> tool-calls");
    assert_eq!(responses(&[&added, &added]), format!("<0 go#a {MALFORMED}item 0 begins twice"));

    let gemini = |events: &[&str]| told(Wire::Gemini, events);
    let parts = |parts: &str, reason: &str| format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"{reason}"}}]}}"#);
    assert_eq!(gemini(&[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#]), "content-filter");
    assert_eq!(gemini(&[&parts("", "MALFORMED_FUNCTION_CALL")]), format!("{MALFORMED}it ended with MALFORMED_FUNCTION_CALL"));
    assert_eq!(gemini(&[&parts("", "")]), format!("{MALFORMED}it broke off before its end"));
    let (other, stop) = (r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"x"}]}}]}"#, parts("", "STOP"));
    let counted = r#"{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1,"thoughtsTokenCount":5}}"#;
    assert_eq!(gemini(&[other, counted, counted, &stop]), "stop 3/6");
    let call = r#"{"functionCall":{"name":"go","args":null}}"#;
    assert_eq!(gemini(&[&parts(call, "STOP")]), "<0 go# 0> tool-calls");
    let said = r#"{"text":"So.","thought":true,"thoughtSignature":"c"},{"text":"a","thoughtSignature":"d"},{"text":"b"}"#;
    let state = r#"[{"text":"So.","thought":true,"thoughtSignature":"c"},{"text":"a","thoughtSignature":"d"},{"text":"b"}]"#;
    assert_eq!(gemini(&[&parts(said, "STOP")]), format!("(So.) a b stop {state}"));
    assert_eq!(gemini(&[&parts(r#"{"text":"a"}"#, "STOP")]), "a stop", "nothing that is wanted back");
    let error = gemini(&[r#"{"error":{"status":"UNAVAILABLE","message":"no"}}"#]);
    assert_eq!(error, format!("{NOT_NOW}error in the stream: no"));
    let error = gemini(&[r#"{"error":{"code":429,"message":"no"}}"#]);
    assert_eq!(error, format!("{NOT_NOW}error in the stream: no"));

    let ollama = |events: &[&str]| told(Wire::Ollama, events);
    let thought = r#"{"message":{"thinking":"So."}}"#;
    assert_eq!(ollama(&[thought, r#"{"done":true,"done_reason":"length"}"#, thought]), "(So.) length");
    let call = r#"{"message":{"tool_calls":[{"function":{"name":"go"}}]}}"#;
    let done = r#"{"done":true,"done_reason":"stop","prompt_eval_count":3,"eval_count":2}"#;
    assert_eq!(ollama(&[call, done]), "<0 go# 0> tool-calls 3/2");
}

#[rustfmt::skip]
#[test]
fn a_provider_state_that_lacks_an_emitted_part_is_dropped() {
    let responses = |events: &[&str]| told(Wire::OpenAiResponses, events);
    let done = |place: u8, item: &str| format!(r#"{{"type":"response.output_item.done","output_index":{place},"item":{item}}}"#);
    let reasoning = done(0, r#"{"type":"reasoning","encrypted_content":"ZW5j"}"#);
    let message = done(1, r#"{"type":"message","content":[]}"#);
    let added = r#"{"type":"response.output_item.added","output_index":2,"item":{"type":"function_call","call_id":"a","name":"go"}}"#;
    let words = r#"{"type":"response.output_text.delta","output_index":2,"delta":"Hm."}"#;
    let cut = r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#;
    assert!(responses(&[&reasoning, &message, cut]).starts_with("length ["));
    assert_eq!(responses(&[&reasoning, &message, added, cut]), "<0 go#a length");
    assert_eq!(responses(&[&reasoning, &message, words, cut]), "Hm. length");
    let bare = done(0, r#"{"type":"reasoning","encrypted_content":null}"#);
    assert_eq!(responses(&[&bare, &message, cut]), "length", "what the server has not stored cannot be named to it");
    let phased = done(0, r#"{"type":"message","phase":"commentary"}"#);
    assert!(responses(&[&phased, cut]).starts_with("length ["));
}

#[test]
fn events_are_split_as_the_sse_standard_requires() {
    let hm = r#"{"choices":[{"delta":{"content":"Hm."},"finish_reason":"stop"}]}"#;
    for before in ["data:\n\n", "data\n\n", "database: x\n\n", ": x\n\n"] {
        assert_eq!(line(Wire::OpenAiChat, &format!("{before}data: {hm}\n\n")), "Hm. stop", "{before:?}");
    }
    // In mid-stream, a byte order mark makes the line an unknown field.
    let marked = format!("data: {hm}\n\n\u{feff}data: nonsense\n\n");
    assert_eq!(line(Wire::OpenAiChat, &marked), "Hm. stop");
    let two_lines = hm.replacen("Hm.", "\ndata: ", 1);
    assert!(line(Wire::OpenAiChat, &format!("data: {two_lines}\n\n")).starts_with(MALFORMED));
    let long = "x".repeat(5 << 20);
    let joined = format!("data: {long}\ndata: {long}\n\n");
    assert_eq!(line(Wire::OpenAiChat, &joined), format!("{MALFORMED}an event is too long"));
}

#[test]
fn overlong_names_and_ids_of_calls_are_not_kept() {
    let started = |id: usize, name: usize| {
        let call = json!({"function": {"name": "n".repeat(name), "arguments": "{}"}, "id": "i".repeat(id)});
        let data = json!({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]});
        let read = read(Wire::OpenAiChat, vec![format!("data: {data}\n\n").into()]);
        let Some(ModelEvent::CallStarted { provider_call_id, tool_name, .. }) = read.events.first() else {
            panic!("{read:?}")
        };
        (provider_call_id.len(), tool_name.len())
    };
    assert_eq!(started(2048, 256), (2048, 256));
    assert_eq!(started(2049, 3), (0, 3));
    assert!(started(1, 5000).1 <= 256);
}

fn remote(wire: Wire, base_url: &str, key: &str, options: &Value) -> Result<Remote, RemoteError> {
    let (base_url, api_key) = (Some(base_url.to_owned()), Some(key.into()));
    let options = options.as_object().cloned().unwrap();
    Remote::new(RemoteConfig { wire, id: "m".to_owned(), base_url, api_key, options })
}

#[test]
fn a_request_has_exactly_the_configured_parts() {
    let request = |wire, key, options: &Value| {
        let remote = remote(wire, "http://127.0.0.1:9/v1/", key, options).unwrap();
        let request = remote.request(&conversation(Speaker::Another));
        let body = serde_json::from_slice::<Value>(request.body().unwrap().as_bytes().unwrap()).unwrap();
        (request.url().to_string(), request.headers().clone(), body)
    };
    let options = json!({"stream_options": null, "temperature": 0.5});
    let (url, headers, body) = request(Wire::OpenAiChat, "", &options);
    assert_eq!(url, "http://127.0.0.1:9/v1/chat/completions");
    assert_eq!(headers.get("authorization"), None, "no key, no header");
    assert_eq!((body.get("stream_options"), &body["temperature"]), (None, &json!(0.5)));
    let (_, headers, _) = request(Wire::Anthropic, "k", &json!({}));
    assert_eq!(headers["x-api-key"], "k");
    assert_eq!(headers["anthropic-version"], "2023-06-01");
    for (model, asks) in [("gpt-4o", false), ("ft:gpt-4o:me", false), ("o3", true)] {
        let body = Wire::OpenAiResponses.body(model, &conversation(Speaker::Another));
        assert_eq!(body.contains_key("include"), asks, "{model}");
    }
}

#[test]
fn a_base_url_with_a_query_fragment_or_credentials_is_refused() {
    for bad in ["http://a/v1?key=s", "http://a/v1#s", "http://s@a/v1", "http://:s@a/v1", "ftp://a/v1", "a/v1"]
    {
        let error = remote(Wire::OpenAiChat, bad, "", &json!({})).err();
        assert!(matches!(error, Some(RemoteError::BaseUrl(_))), "{bad}");
    }
}

#[test]
fn an_error_for_the_log_is_one_short_line_without_the_key() {
    let http = remote(Wire::OpenAiChat, "http://a/v1", "sk-never", &json!({})).unwrap().http;
    let said = format!("bad key sk-never\nERROR forged {}", "x".repeat(5000));
    let told = http.harmless(ModelError::Upstream(said)).to_string();
    assert!(told.contains("bad key [key] ERROR forged") && told.len() < 600, "{told}");
    for body in [r#"{"detail":"no"}"#, r#"[{"error":{"message":"no"}}]"#, r#"{"error":"no"}"#, "no"] {
        assert_eq!(transport::words(body), "no");
    }
}

#[test]
fn blank_texts_and_long_ids_are_rewritten_for_the_servers_that_refuse_them() {
    let call = |id: &str| ModelCall { id: id.into(), tool_name: "go".into(), input: Map::new() };
    let long = "x".repeat(65);
    let said = ModelMessage::Assistant {
        text: String::new(),
        calls: vec![call(&long)],
        speaker: Speaker::Same { provider_state: None },
    };
    let answer = ModelMessage::Tool { call_id: long.clone(), tool_name: "go".into(), text: "done".into() };
    let messages = vec![ModelMessage::User(" \n".into()), said, answer];
    let request = ModelRequest { system: None, messages, tools: vec![] };
    let written = |wire: Wire| Value::Object(wire.body("m", &request));
    let chat = written(Wire::OpenAiChat);
    assert_eq!(chat["messages"][1]["content"], Value::Null);
    assert_eq!(chat["messages"][1]["tool_calls"][0]["id"], *long, "its own");
    let anthropic = written(Wire::Anthropic);
    assert_eq!(anthropic["messages"][0]["content"], "(blank)");
    assert_eq!(anthropic["messages"][1]["content"].as_array().unwrap().len(), 1, "no blank words");
    let id = anthropic["messages"][1]["content"][0]["id"].as_str().unwrap();
    assert!(id.len() <= 64 && anthropic["messages"][2]["content"][0]["tool_use_id"] == id, "{id}");
    let gemini = written(Wire::Gemini);
    assert_eq!(gemini["contents"][0]["parts"], json!([{"text": "(blank)"}]));
    assert_eq!(gemini["contents"][1]["parts"].as_array().unwrap().len(), 1, "no blank words");
}
