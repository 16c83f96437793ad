//! The fuzz target for the parser of model answers: answers as servers of each wire send them, complete and
//! damaged, in any chunks.

use super::tests::{Read, read};
use super::*;
use crate::config::fuzz::for_a_while;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::json;

const WIRES: [Wire; 5] =
    [Wire::OpenAiChat, Wire::OpenAiResponses, Wire::Anthropic, Wire::Gemini, Wire::Ollama];

/// A part of an answer.
#[derive(Debug, Clone, PartialEq)]
enum ReadPart {
    Text(String),
    Reasoning(String),
    Call { id: String, name: String, arguments: Map<String, Value> },
    Source(String, Option<String>),
    File(String, Vec<u8>),
}

impl ReadPart {
    fn can_be_said_on(&self, wire: Wire) -> bool {
        match self {
            Self::Text(_) | Self::Reasoning(_) | Self::Call { .. } => true,
            Self::Source(..) => wire != Wire::Ollama,
            Self::File(..) => wire == Wire::Gemini,
        }
    }
}

/// The random choices of a case: where a text is cut, and whether a comment separates two events.
#[derive(Debug, Clone)]
struct Dice(Vec<u8>, usize);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.1 += 1;
        usize::from(self.0[self.1 % self.0.len()]) % sides
    }

    fn pieces(&mut self, text: &str) -> Vec<String> {
        let mut pieces = vec![String::new()];
        for it in text.chars() {
            if self.roll(4) == 0 {
                pieces.push(String::new());
            }
            pieces.last_mut().unwrap().push(it);
        }
        pieces
    }

    fn cut(&mut self, bytes: &[u8]) -> Vec<Bytes> {
        let mut rest = bytes;
        let mut cut = Vec::new();
        while !rest.is_empty() {
            let (piece, more) = rest.split_at((1 + self.roll(40)).min(rest.len()));
            cut.push(Bytes::copy_from_slice(piece));
            rest = more;
        }
        cut
    }
}

fn words() -> impl Strategy<Value = String> {
    let odd =
        prop::sample::select(vec!['"', '\\', '\n', '\r', '\u{2028}', '\0', '\u{feff}', '{', ':', 'é', '🦀']);
    let letter = prop_oneof![3 => prop::char::range('a', 'z'), 2 => odd, 1 => any::<char>()];
    prop::collection::vec(letter, 1..24).prop_map(String::from_iter)
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        words().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((words(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn said() -> impl Strategy<Value = ReadPart> {
    let arguments = prop::collection::vec((words(), json_value()), 0..4);
    let call = ("[a-z]{1,8}", "[a-z_]{1,12}", arguments).prop_map(|(id, name, fields)| ReadPart::Call {
        id,
        name,
        arguments: fields.into_iter().collect(),
    });
    let source = (words(), prop::option::of(words())).prop_map(|(url, title)| ReadPart::Source(url, title));
    let file = (words(), prop::collection::vec(any::<u8>(), 0..24))
        .prop_map(|(kind, data)| ReadPart::File(kind, data));
    prop_oneof![
        3 => words().prop_map(ReadPart::Text),
        2 => words().prop_map(ReadPart::Reasoning),
        2 => call,
        1 => source,
        1 => file,
    ]
}

fn answers() -> impl Strategy<Value = (Vec<ReadPart>, Dice)> {
    let dice = prop::collection::vec(any::<u8>(), 1..64).prop_map(|rolls| Dice(rolls, 0));
    (prop::collection::vec(said(), 0..8), dice)
}

/// Returns the answer as a server of this wire streams it.
fn stream_of(wire: Wire, answer: &[ReadPart], dice: &mut Dice) -> Vec<u8> {
    let calls = answer.iter().any(|said| matches!(said, ReadPart::Call { .. }));
    let mut events = Vec::new();
    let mut call_number = 0;
    for (place, said) in answer.iter().enumerate() {
        match wire {
            _ if !said.can_be_said_on(wire) => {}
            Wire::OpenAiChat => chat(said, call_number, dice, &mut events),
            Wire::OpenAiResponses => responses(said, place, dice, &mut events),
            Wire::Anthropic => anthropic(said, place, dice, &mut events),
            Wire::Gemini => gemini(said, dice, &mut events),
            Wire::Ollama => ollama(said, dice, &mut events),
        }
        call_number += usize::from(matches!(said, ReadPart::Call { .. }));
    }
    let reason = |with: &str, without: &str| if calls { with.to_owned() } else { without.to_owned() };
    match wire {
        Wire::OpenAiChat => {
            let reason = reason("tool_calls", "stop");
            events.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }));
            events.push(json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } }));
        }
        Wire::OpenAiResponses => events.push(json!({ "type": "response.completed", "response": {
            "status": "completed", "usage": { "input_tokens": 3, "output_tokens": 4 } } })),
        Wire::Anthropic => {
            let usage = json!({ "input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 1 });
            events.insert(0, json!({ "type": "message_start", "message": { "usage": usage } }));
            events.push(json!({ "type": "message_delta", "usage": { "output_tokens": 4 },
                "delta": { "stop_reason": reason("tool_use", "end_turn") } }));
            events.push(json!({ "type": "message_stop" }));
        }
        Wire::Gemini => events.push(json!({ "candidates": [{ "finishReason": "STOP" }],
            "usageMetadata": { "promptTokenCount": 3, "candidatesTokenCount": 4 } })),
        Wire::Ollama => events.push(json!({ "message": { "role": "assistant", "content": "" }, "done": true,
            "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4 })),
    }
    framed(wire, &events, dice)
}

fn framed(wire: Wire, events: &[Value], dice: &mut Dice) -> Vec<u8> {
    let newline = if dice.roll(3) == 0 { "\r\n" } else { "\n" };
    let mut out = if dice.roll(8) == 0 { "\u{feff}".to_owned() } else { String::new() };
    for event in events {
        if wire == Wire::Ollama {
            out.push_str(&format!("{event}{newline}"));
            continue;
        }
        if dice.roll(6) == 0 {
            out.push_str(&format!(": keep-alive{newline}{newline}"));
        }
        if let Some(name) = event["type"].as_str().filter(|_| dice.roll(2) == 0) {
            out.push_str(&format!("event: {name}{newline}"));
        }
        let space = if dice.roll(4) == 0 { "" } else { " " };
        out.push_str(&format!("data:{space}{event}{newline}{newline}"));
    }
    if wire == Wire::OpenAiChat && dice.roll(3) > 0 {
        out.push_str("data: [DONE]");
        out.push_str(&newline.repeat(dice.roll(3)));
    }
    out.into_bytes()
}

fn chat(said: &ReadPart, number: usize, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |delta: Value| events.push(json!({ "choices": [{ "index": 0, "delta": delta }] }));
    match said {
        ReadPart::Text(text) => {
            dice.pieces(text).iter().for_each(|it| push(json!({ "role": "assistant", "content": it })));
        }
        ReadPart::Reasoning(text) => {
            let field = ["reasoning_content", "reasoning"][dice.roll(2)];
            dice.pieces(text).iter().for_each(|it| push(json!({ field: it, "content": null })));
        }
        ReadPart::Call { id, name, arguments } => {
            let place = if dice.roll(3) == 0 { Value::Null } else { number.into() };
            // The id identifies the call if the piece has no index.
            let id = format!("{id}{number}");
            let function = json!({ "name": name, "arguments": "" });
            push(json!({ "tool_calls": [{ "index": place, "id": id, "function": function }] }));
            for piece in dice.pieces(&Value::from(arguments.clone()).to_string()) {
                let (id, name) =
                    if dice.roll(3) == 0 { (json!(id), json!(name)) } else { (json!(null), json!("")) };
                let function = json!({ "name": name, "arguments": piece });
                push(json!({ "tool_calls": [{ "index": place, "id": id, "function": function }] }));
            }
        }
        ReadPart::Source(url, title) => {
            let annotations =
                json!([{ "type": "url_citation", "url_citation": { "url": url, "title": title } }]);
            push(json!({ "annotations": annotations }));
        }
        ReadPart::File(..) => {}
    }
}

fn responses(said: &ReadPart, place: usize, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |kind: &str, mut event: Value| {
        event["type"] = kind.into();
        event["output_index"] = place.into();
        events.push(event);
    };
    match said {
        ReadPart::Text(text) => {
            push("response.output_item.added", json!({ "item": { "type": "message", "id": "m" } }));
            dice.pieces(text)
                .iter()
                .for_each(|it| push("response.output_text.delta", json!({ "delta": it })));
            let content = json!([{ "type": "output_text", "text": text }]);
            push("response.output_item.done", json!({ "item": { "type": "message", "content": content } }));
        }
        ReadPart::Reasoning(text) => dice.pieces(text).iter().for_each(|it| {
            push("response.reasoning_summary_text.delta", json!({ "delta": it }));
        }),
        ReadPart::Call { id, name, arguments } => {
            let arguments = Value::from(arguments.clone()).to_string();
            let item = |arguments: &str| {
                let call_id = format!("{id}{place}");
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
        ReadPart::Source(url, title) => {
            let annotation = json!({ "type": "url_citation", "url": url, "title": title });
            push("response.output_text.annotation.added", json!({ "annotation": annotation }));
        }
        ReadPart::File(..) => {}
    }
}

fn anthropic(said: &ReadPart, place: usize, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |kind: &str, mut event: Value| {
        event["type"] = kind.into();
        event["index"] = place.into();
        events.push(event);
    };
    let (block, deltas) = match said {
        ReadPart::Text(text) => (json!({ "type": "text", "text": "" }), ("text_delta", "text", text.clone())),
        ReadPart::Reasoning(text) => {
            (json!({ "type": "thinking", "thinking": "" }), ("thinking_delta", "thinking", text.clone()))
        }
        ReadPart::Call { id, name, arguments } => {
            let arguments = Value::from(arguments.clone());
            let at_once = dice.roll(4) == 0;
            let input = if at_once { arguments.clone() } else { json!({}) };
            let rest = if at_once { String::new() } else { arguments.to_string() };
            let block =
                json!({ "type": "tool_use", "id": format!("{id}{place}"), "name": name, "input": input });
            (block, ("input_json_delta", "partial_json", rest))
        }
        ReadPart::Source(url, title) => {
            push("content_block_start", json!({ "content_block": { "type": "text", "text": "" } }));
            let citation = json!({ "type": "web_search_result_location", "url": url, "title": title });
            let delta = json!({ "type": "citations_delta", "citation": citation });
            push("content_block_delta", json!({ "delta": delta }));
            return push("content_block_stop", json!({}));
        }
        ReadPart::File(..) => return,
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

fn gemini(said: &ReadPart, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |part: Value| events.push(json!({ "candidates": [{ "content": { "parts": [part] } }] }));
    match said {
        ReadPart::Text(text) => dice.pieces(text).iter().for_each(|it| push(json!({ "text": it }))),
        ReadPart::Reasoning(text) => {
            dice.pieces(text).iter().for_each(|it| push(json!({ "text": it, "thought": true })));
        }
        ReadPart::Call { id, name, arguments } => {
            push(json!({ "functionCall": { "id": id, "name": name, "args": arguments } }));
        }
        ReadPart::File(kind, data) => {
            push(json!({ "inlineData": { "mimeType": kind, "data": STANDARD.encode(data) } }));
        }
        ReadPart::Source(url, title) => {
            let chunks = json!([{ "web": { "uri": url, "title": title } }]);
            events.push(json!({ "candidates": [{ "groundingMetadata": { "groundingChunks": chunks } }] }));
        }
    }
}

fn ollama(said: &ReadPart, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |message: Value| events.push(json!({ "message": message, "done": false }));
    match said {
        ReadPart::Text(text) => dice.pieces(text).iter().for_each(|it| push(json!({ "content": it }))),
        ReadPart::Reasoning(text) => {
            dice.pieces(text).iter().for_each(|it| push(json!({ "content": "", "thinking": it })));
        }
        ReadPart::Call { id, name, arguments } => push(json!({ "content": "",
            "tool_calls": [{ "id": id, "function": { "name": name, "arguments": arguments } }] })),
        ReadPart::Source(..) | ReadPart::File(..) => {}
    }
}

/// Joins adjacent texts, and adjacent pieces of reasoning.
fn folded<'a>(answer: impl IntoIterator<Item = &'a ReadPart>) -> Vec<ReadPart> {
    let mut folded: Vec<ReadPart> = Vec::new();
    for said in answer {
        match (folded.last_mut(), said) {
            (Some(ReadPart::Text(text)), ReadPart::Text(more))
            | (Some(ReadPart::Reasoning(text)), ReadPart::Reasoning(more)) => {
                text.push_str(more);
            }
            _ => folded.push(said.clone()),
        }
    }
    folded
}

/// Returns the parts that were read, joined in the same way. Ids are left out, because some wires have none.
fn read_parts(read: &Read) -> Vec<ReadPart> {
    let mut read_parts: Vec<ReadPart> = Vec::new();
    let mut calls: Vec<(usize, String)> = Vec::new();
    for event in &read.events {
        match event {
            ModelEvent::Text(text) => read_parts.push(ReadPart::Text(text.clone())),
            ModelEvent::Reasoning(text) => read_parts.push(ReadPart::Reasoning(text.clone())),
            ModelEvent::CallStarted { tool_name, .. } => {
                calls.push((read_parts.len(), String::new()));
                let name = tool_name.clone();
                read_parts.push(ReadPart::Call { id: String::new(), name, arguments: Map::new() });
            }
            ModelEvent::CallArguments { index, delta } => calls[*index].1.push_str(delta),
            ModelEvent::Source { url, title } => {
                read_parts.push(ReadPart::Source(url.clone(), title.clone()))
            }
            ModelEvent::File { media_type, data } => {
                read_parts.push(ReadPart::File(media_type.clone(), data.clone()))
            }
            ModelEvent::Alive | ModelEvent::CallFinished { .. } | ModelEvent::Finished { .. } => {}
        }
    }
    for (place, text) in calls {
        if let ReadPart::Call { arguments, .. } = &mut read_parts[place] {
            *arguments = serde_json::from_str(if text.is_empty() { "{}" } else { &text }).unwrap();
        }
    }
    folded(&read_parts)
}

/// Checks the properties of any answer, also of a damaged one.
fn is_in_order(read: &Read) -> Result<(), String> {
    // `finished` is the index of the last complete call plus one.
    let (mut begun, mut finished, mut over) = (0, 0, false);
    for event in &read.events {
        let in_order = !over
            && match event {
                ModelEvent::Alive
                | ModelEvent::Text(_)
                | ModelEvent::Reasoning(_)
                | ModelEvent::Source { .. }
                | ModelEvent::File { .. } => finished == 0,
                ModelEvent::CallStarted { index, tool_name, .. } => {
                    begun += 1;
                    finished == 0 && *index + 1 == begun && !tool_name.is_empty()
                }
                ModelEvent::CallArguments { index, delta } => {
                    finished == 0 && *index < begun && !delta.is_empty()
                }
                ModelEvent::CallFinished { index } => {
                    let ascends = *index >= finished;
                    finished = *index + 1;
                    *index < begun && ascends
                }
                ModelEvent::Finished { .. } => {
                    over = true;
                    true
                }
            };
        if !in_order {
            return Err(format!("out of order: {event:?}"));
        }
    }
    if over == read.error.is_some() {
        return Err(format!("over: {over}, and yet {:?}", read.error));
    }
    Ok(())
}

#[test]
fn fuzz_upstream_answers_are_read_as_they_were_said() {
    let cases = (prop::sample::select(WIRES.to_vec()), answers());
    for_a_while("upstream, whole", &cases, |(wire, (answer, mut dice))| {
        let bytes = stream_of(wire, &answer, &mut dice);
        let read = read(wire, dice.cut(&bytes));
        prop_assert_eq!(&read.error, &None);
        prop_assert_eq!(is_in_order(&read), Ok(()));
        let whole = read.events.iter().filter(|event| matches!(event, ModelEvent::CallFinished { .. }));
        let calls = answer.iter().filter(|said| matches!(said, ReadPart::Call { .. }));
        prop_assert_eq!(whole.count(), calls.count());
        let mut expected = folded(answer.iter().filter(|said| said.can_be_said_on(wire)));
        for said in &mut expected {
            if let ReadPart::Call { id, .. } = said {
                id.clear();
            }
        }
        prop_assert_eq!(read_parts(&read), expected);
        let usage = Some(crate::domain::message::Usage { input_tokens: 3, output_tokens: 4 });
        let ends_so =
            matches!(read.events.last(), Some(ModelEvent::Finished { usage: it, .. }) if *it == usage);
        prop_assert!(ends_so, "{:?}", read.events.last());
        Ok(())
    });
}

#[test]
fn fuzz_upstream_damaged_answers_end_in_order_and_alike_in_any_cuts() {
    let damage = prop::collection::vec((any::<Index>(), any::<u8>(), 0..6_u8), 1..12);
    let cases = (prop::sample::select(WIRES.to_vec()), answers(), damage);
    for_a_while("upstream, damaged", &cases, |(wire, (answer, mut dice), damage)| {
        let mut bytes = stream_of(wire, &answer, &mut dice);
        for (at, byte, how) in damage {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.remove(at)),
                3 => bytes.truncate(at),
                // Duplicates a piece.
                4 => {
                    let piece = bytes[at..].iter().copied().take(usize::from(byte)).collect::<Vec<_>>();
                    bytes.splice(at..at, piece);
                }
                _ => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len()))),
            }
        }
        let whole = read(wire, vec![Bytes::from(bytes.clone())]);
        prop_assert_eq!(is_in_order(&whole), Ok(()));
        prop_assert_eq!(&read(wire, dice.cut(&bytes)), &whole);
        Ok(())
    });
}
