//! The seals of each kind of server, as in its own documentation.

use super::{ANNOUNCED, DONE, Script, StrictWire, THOUGHTS};
use serde_json::{Value, json};

/// An opaque, long seal, like real signatures.
fn seal(which: &str) -> String {
    format!("sealed/{which}+{}==", "Zm9yZ2V0IG1lIG5vdA".repeat(300))
}

/// Three kinds of servers on the chat completions wire, then the others.
pub(crate) static STRICT: [StrictWire; 7] = [
    StrictWire { provider: "openai", base: "/deepseek/v1", thinks: true, answers: deepseek },
    StrictWire { provider: "openai", base: "/openrouter/v1", thinks: true, answers: openrouter },
    StrictWire { provider: "openai", base: "/v1beta/openai", thinks: false, answers: google },
    StrictWire { provider: "openai-responses", base: "/v1", thinks: true, answers: responses },
    StrictWire { provider: "anthropic", base: "/v1", thinks: true, answers: anthropic },
    StrictWire { provider: "gemini", base: "/v1beta", thinks: true, answers: gemini },
    StrictWire { provider: "ollama", base: "", thinks: true, answers: ollama },
];

// Text may be cut anywhere; these cuts are inside words and escapes.
fn halves(text: &str) -> [&str; 2] {
    text.split_at(text.char_indices().nth(text.chars().count() / 2).unwrap().0).into()
}

fn chat_chunk(delta: Value) -> Value {
    json!({ "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

#[rustfmt::skip]
fn chat_end(reason: &str) -> [Value; 2] {
    [
        json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        json!({"object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 8}}),
    ]
}

/// The answers of every server of this wire; `seals` are the deltas before its text, `extra` belongs to its
/// first call.
#[rustfmt::skip]
fn chat(seals: Vec<Value>, extra: &Value, back: Value) -> [Script; 2] {
    let call = |index: usize, id: &str, name: &str| {
        json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]})
    };
    let more = |index: usize, piece: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]});
    let mut list = call(0, "call_list", "list_files");
    if !extra.is_null() {
        list["tool_calls"][0]["extra_content"] = extra.clone();
    }
    let mut events = vec![json!({"role": "assistant", "content": ""})];
    events.extend(seals.clone());
    events.extend([
        json!({"content": ANNOUNCED}), list, more(0, "{}"),
        call(1, "call_delete", "delete_file"), more(1, "{\"path\":"), more(1, "\"old.txt\"}"),
    ]);
    let first = events.into_iter().map(chat_chunk).chain(chat_end("tool_calls")).collect();

    let mut back_first = json!({"role": "assistant", "content": ANNOUNCED, "tool_calls": [
        {"id": "call_list", "extra_content": extra, "function": {"name": "list_files", "arguments": "{}"}},
        {"id": "call_delete", "extra_content": null, "function": {"name": "delete_file", "arguments": "{\"path\":\"old.txt\"}"}},
    ]});
    back_first.as_object_mut().unwrap().extend(back.as_object().unwrap().clone());

    // Such servers also require the reasoning before the last text of a turn with calls.
    let pieces = seals.into_iter().filter(|seal| seal.get("reasoning_content").is_some());
    let last = pieces.chain([json!({"content": DONE})]).map(chat_chunk).chain(chat_end("stop")).collect();
    let thoughts = back.get("reasoning_content");
    let back_last = json!({"role": "assistant", "content": DONE, "reasoning_content": thoughts, "tool_calls": null});
    [Script { events: first, back: vec![back_first] }, Script { events: last, back: vec![back_last] }]
}

fn deepseek() -> [Script; 2] {
    let thoughts = halves(THOUGHTS).map(|half| json!({ "reasoning_content": half, "content": null }));
    chat(thoughts.to_vec(), &Value::Null, json!({ "reasoning_content": THOUGHTS }))
}

#[rustfmt::skip]
fn openrouter() -> [Script; 2] {
    let signature = seal("text");
    let thought = |text: &str, signature: &str| {
        json!({"type": "reasoning.text", "text": text, "signature": signature, "format": "anthropic-claude-v1", "index": 0})
    };
    let piece = |half: &str| {
        let mut piece = thought(half, "");
        piece["signature"] = Value::Null;
        json!({"reasoning": half, "reasoning_details": [piece]})
    };
    let secret = json!({"type": "reasoning.encrypted", "data": seal("data"), "id": "rs_sealed", "format": "openai-responses-v1", "index": 1});
    let [one, other] = halves(THOUGHTS).map(piece);
    // The deltas of one reasoning part are merged; its signature arrives without text.
    let signed = json!({"reasoning_details": [{"type": "reasoning.text", "signature": signature, "format": "anthropic-claude-v1", "index": 0}]});
    let seals = vec![one, other, signed, json!({"reasoning_details": [secret]})];
    chat(seals, &Value::Null, json!({"reasoning_details": [thought(THOUGHTS, &signature), secret]}))
}

fn google() -> [Script; 2] {
    let extra = json!({ "google": { "thought_signature": seal("thought") } });
    chat(Vec::new(), &extra, json!({}))
}

#[rustfmt::skip]
fn responses() -> [Script; 2] {
    // An item differs between its begin and its end event.
    let done = |place: usize, begun: Value, deltas: Vec<Value>, item: &Value| {
        let mut events = vec![json!({"type": "response.output_item.added", "output_index": place, "item": begun})];
        events.extend(deltas);
        events.push(json!({"type": "response.output_item.done", "output_index": place, "item": item}));
        events
    };
    let delta = |kind: &str, place: usize, piece: &str| {
        json!({"type": format!("response.{kind}.delta"), "output_index": place, "delta": piece})
    };
    let thought = |id: &str| json!({"type": "reasoning", "id": id, "encrypted_content": seal(id),
        "summary": [{"type": "summary_text", "text": THOUGHTS}]});
    let think = |id: &str| {
        let begun = json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "not yet"});
        let told = halves(THOUGHTS).map(|half| delta("reasoning_summary_text", 0, half));
        done(0, begun, told.to_vec(), &thought(id))
    };
    let speak = |id: &str, words: &str| {
        let item = |status: &str, content: Value| json!({"type": "message", "id": id, "role": "assistant", "status": status, "content": content});
        let said = item("completed", json!([{"type": "output_text", "text": words, "annotations": []}]));
        done(1, item("in_progress", json!([])), halves(words).map(|half| delta("output_text", 1, half)).to_vec(), &said)
    };
    let call = |place: usize, id: &str, call_id: &str, name: &str, arguments: &str| {
        let item = |arguments: &str| json!({"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments});
        let pieces = halves(arguments).map(|half| delta("function_call_arguments", place, half));
        done(place, item(""), pieces.to_vec(), &item(arguments))
    };
    let end = || vec![json!({"type": "response.completed", "response": {"status": "completed", "output": [],
        "usage": {"input_tokens": 9, "output_tokens": 8}}})];
    let spoken = |id: &str, words: &str| json!({"type": "message", "id": id, "role": "assistant",
        "content": [{"type": "output_text", "text": words}]});
    let called = |id: &str, call_id: &str, name: &str, arguments: &str| json!({"type": "function_call", "id": id,
        "call_id": call_id, "name": name, "arguments": arguments});
    let delete = "{\"path\":\"old.txt\"}";
    [
        Script {
            events: [think("rs_sealed_1"), speak("msg_sealed_1", ANNOUNCED), call(2, "fc_sealed_1", "call_list", "list_files", "{}"),
                call(3, "fc_sealed_2", "call_delete", "delete_file", delete), end()].concat(),
            back: vec![thought("rs_sealed_1"), spoken("msg_sealed_1", ANNOUNCED), called("fc_sealed_1", "call_list", "list_files", "{}"),
                called("fc_sealed_2", "call_delete", "delete_file", delete)],
        },
        Script {
            events: [think("rs_sealed_2"), speak("msg_sealed_2", DONE), end()].concat(),
            back: vec![thought("rs_sealed_2"), spoken("msg_sealed_2", DONE)],
        },
    ]
}

#[rustfmt::skip]
fn anthropic() -> [Script; 2] {
    let block = |index: usize, begun: Value, deltas: &[Value]| {
        let delta = |delta: &Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        let mut events = vec![json!({"type": "content_block_start", "index": index, "content_block": begun})];
        events.extend(deltas.iter().map(delta));
        events.push(json!({"type": "content_block_stop", "index": index}));
        events
    };
    let begin = || vec![
        json!({"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}}),
        json!({"type": "ping"}),
    ];
    let end = |reason: &str| vec![
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 8}}),
        json!({"type": "message_stop"}),
    ];
    let think = |which: &str| {
        let [one, other] = halves(THOUGHTS).map(|half| json!({"type": "thinking_delta", "thinking": half}));
        let signature = json!({"type": "signature_delta", "signature": seal(which)});
        block(0, json!({"type": "thinking", "thinking": "", "signature": ""}), &[one, other, signature])
    };
    let speak = |index: usize, words: &str| {
        let pieces = halves(words).map(|half| json!({"type": "text_delta", "text": half}));
        block(index, json!({"type": "text", "text": ""}), &pieces)
    };
    let call = |index: usize, id: &str, name: &str, pieces: &[&str]| {
        let pieces: Vec<Value> = pieces.iter().map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect();
        block(index, json!({"type": "tool_use", "id": id, "name": name, "input": {}}), &pieces)
    };
    let thought = |which: &str| json!({"type": "thinking", "thinking": THOUGHTS, "signature": seal(which)});
    let redacted = json!({"type": "redacted_thinking", "data": seal("redacted")});
    let text = |words: &str| json!({"type": "text", "text": words});
    let tool_use = |id: &str, name: &str, input: Value| json!({"type": "tool_use", "id": id, "name": name, "input": input});
    let said = |blocks: Value| json!({"role": "assistant", "content": blocks});
    [
        Script {
            events: [begin(), think("first"), block(1, redacted.clone(), &[]), speak(2, ANNOUNCED), call(3, "toolu_list", "list_files", &[""]),
                call(4, "toolu_delete", "delete_file", &["", "{\"path\": \"ol", "d.txt\"}"]), end("tool_use")].concat(),
            back: vec![said(json!([thought("first"), redacted, text(ANNOUNCED), tool_use("toolu_list", "list_files", json!({})),
                tool_use("toolu_delete", "delete_file", json!({"path": "old.txt"}))]))],
        },
        Script {
            events: [begin(), think("last"), speak(1, DONE), end("end_turn")].concat(),
            back: vec![said(json!([thought("last"), text(DONE)]))],
        },
    ]
}

#[rustfmt::skip]
fn gemini() -> [Script; 2] {
    let chunk = |parts: Value| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}]});
    let last = |parts: Value| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 3}});
    let said = |parts: Value| json!({"role": "model", "parts": parts});
    let thought = |half: &str| chunk(json!([{"text": half, "thought": true}]));
    let [one, other] = halves(THOUGHTS);
    let announced = json!({"text": ANNOUNCED, "thoughtSignature": seal("text")});
    // The first of parallel calls has the signature of all.
    let list = json!({"functionCall": {"name": "list_files", "args": {}}, "thoughtSignature": seal("call")});
    let delete = json!({"functionCall": {"name": "delete_file", "args": {"path": "old.txt"}}});
    let mut deleted = delete.clone();
    deleted["thoughtSignature"] = Value::Null;
    // The last signature may arrive without text.
    let empty = json!({"text": "", "thoughtSignature": seal("end")});
    let unsigned = json!({"text": DONE, "thoughtSignature": null});
    let [begun, rest] = halves(DONE).map(|half| chunk(json!([{"text": half}])));
    [
        Script {
            events: vec![thought(one), thought(other), chunk(json!([announced])), last(json!([list, delete]))],
            back: vec![said(json!([announced, list, deleted]))],
        },
        Script {
            events: vec![thought(one), begun, rest, last(json!([empty]))],
            back: vec![said(json!([unsigned, empty]))],
        },
    ]
}

#[rustfmt::skip]
fn ollama() -> [Script; 2] {
    let line = |message: Value| json!({"message": message, "done": false});
    let think = |half: &str| line(json!({"role": "assistant", "content": "", "thinking": half}));
    let end = || json!({"message": {"role": "assistant", "content": ""}, "done": true, "done_reason": "stop",
        "prompt_eval_count": 9, "eval_count": 8});
    let calls = json!([{"id": "call_list", "function": {"index": 0, "name": "list_files", "arguments": {}}},
        {"id": "call_delete", "function": {"index": 1, "name": "delete_file", "arguments": {"path": "old.txt"}}}]);
    let called = json!([{"function": {"name": "list_files", "arguments": {}}},
        {"function": {"name": "delete_file", "arguments": {"path": "old.txt"}}}]);
    let [one, other] = halves(THOUGHTS);
    let first = [think(one), think(other), line(json!({"role": "assistant", "content": ANNOUNCED})),
        line(json!({"role": "assistant", "content": "", "tool_calls": calls})), end()];
    let last = [think(one), line(json!({"role": "assistant", "content": DONE})), end()];
    [
        Script { events: first.to_vec(), back: vec![json!({"role": "assistant", "content": ANNOUNCED, "thinking": THOUGHTS, "tool_calls": called})] },
        Script { events: last.to_vec(), back: vec![json!({"role": "assistant", "content": DONE, "tool_calls": null})] },
    ]
}
