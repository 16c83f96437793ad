//! Answers that say the same in other places: in pieces, in a closing frame, in the whole message, in several of
//! these, once or twice, before and after an early reason. All of them are read as what was meant.

use super::parts::Dice;
use super::*;
use holdpoint_fuzz::for_a_while;
use proptest::prelude::*;

/// What an answer means.
#[derive(Debug, Clone, PartialEq)]
struct MeantAnswer {
    reasoning: String,
    text: String,
    /// The id, the name and the arguments of each call.
    calls: Vec<(String, String, Value)>,
}

impl MeantAnswer {
    fn reason(&self, stop: &'static str, calls: &'static str) -> &'static str {
        if self.calls.is_empty() { stop } else { calls }
    }
}

fn meant() -> impl Strategy<Value = (MeantAnswer, Dice)> {
    let words = "[a-zé🦀 ]{0,24}[a-z]{16}";
    let arguments = prop::collection::vec(("[a-z]{1,4}", "[a-z{}\"\\\\ ]{0,8}"), 0..3);
    let call = ("[a-z]{3,6}", arguments).prop_map(|(name, fields)| {
        let fields: Map<_, _> = fields.into_iter().map(|(field, value)| (field, value.into())).collect();
        (name, Value::from(fields))
    });
    let said = (prop::option::of(words), prop::option::of(words), prop::collection::vec(call, 0..3));
    let dice = prop::collection::vec(any::<u8>(), 8..64).prop_map(Dice::new);
    (said, dice).prop_map(|((reasoning, text, calls), dice)| {
        let calls: Vec<_> =
            (0..).zip(calls).map(|(n, (name, input))| (format!("c{n}"), name, input)).collect();
        let text = text.or_else(|| calls.is_empty().then(|| "no calls and no words".to_owned()));
        (
            MeantAnswer { reasoning: reasoning.unwrap_or_default(), text: text.unwrap_or_default(), calls },
            dice,
        )
    })
}

/// Draws some of the places, at least one.
fn places<const N: usize>(dice: &mut Dice) -> [bool; N] {
    let mut drawn = [false; N];
    for place in &mut drawn {
        *place = dice.roll(2) == 0;
    }
    drawn[dice.roll(N)] = true;
    drawn
}

/// Writes the arguments as an object, or as text.
fn written(input: &Value, dice: &mut Dice) -> Value {
    if dice.roll(3) == 0 { input.clone() } else { input.to_string().into() }
}

fn chat(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
    let [text, reasoning, calls]: [[bool; 2]; 3] = [places(dice), places(dice), places(dice)];
    let field = ["reasoning_content", "reasoning"][dice.roll(2)];
    let mut deltas = Vec::new();
    if reasoning[0] {
        deltas.extend(dice.pieces(&meant.reasoning).into_iter().map(|piece| json!({ field: piece })));
    }
    if text[0] {
        deltas.extend(dice.pieces(&meant.text).into_iter().map(|piece| json!({ "content": piece })));
    }
    for (n, (id, name, input)) in meant.calls.iter().enumerate().filter(|_| calls[0]) {
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
        let call = |(id, name, input): &(String, String, Value)| {
            let function = json!({ "name": name, "arguments": written(input, dice) });
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

fn responses(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
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
    for (id, name, input) in &meant.calls {
        let whole = json!({ "call_id": id, "name": name, "arguments": written(input, dice) });
        let say = |dice: &mut Dice, drawn: [bool; 4]| {
            let kind = "response.function_call_arguments";
            let empty = if dice.roll(3) == 0 { "{}" } else { "" };
            let pieces = if drawn[0] { dice.pieces(&format!("{empty}{input}")) } else { Vec::new() };
            let deltas = pieces.iter().map(|it| json!({ "type": format!("{kind}.delta"), "delta": it }));
            let done = json!({ "type": format!("{kind}.done"), "arguments": written(input, dice) });
            deltas.collect::<Vec<_>>().into_iter().chain(drawn[1].then_some(done)).collect()
        };
        item("function_call", whole, &say, dice);
    }
    let usage = json!({ "input_tokens": "3", "output_tokens": 4 });
    let response = json!({ "status": "completed", "output": output, "usage": usage });
    events.push(json!({ "type": "response.completed", "response": response }));
    events.iter().map(Value::to_string).collect()
}

fn anthropic(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
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
    for (id, name, input) in &meant.calls {
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

fn gemini(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
    let usage = json!({ "promptTokenCount": 3, "candidatesTokenCount": 4 });
    let mut parts: Vec<_> =
        dice.pieces(&meant.reasoning).iter().map(|it| json!({ "text": it, "thought": true })).collect();
    let pieces = dice.pieces(&meant.text);
    parts.extend(pieces.iter().map(|it| json!({ "text": it })));
    let call = |(id, name, input): &(String, String, Value)| json!({ "functionCall": { "id": id, "name": name, "args": input } });
    parts.extend(meant.calls.iter().map(call));
    let chunk = |parts: Value, reason: Value| json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": reason }], "usageMetadata": usage });
    let mut events: Vec<_> = parts
        .into_iter()
        .map(|part| chunk(json!([part]), if dice.roll(4) == 0 { json!("STOP") } else { json!(null) }))
        .collect();
    // The last chunk has nothing more, or says all of it again.
    let repeats = pieces.iter().filter(|it| !it.is_empty()).count() > 1 && dice.roll(2) == 0;
    let mut last: Vec<_> = repeats.then(|| json!({ "text": meant.text })).into_iter().collect();
    if dice.roll(2) == 0 {
        last.extend(meant.calls.iter().map(call));
    }
    events.push(chunk(last.into(), json!("STOP")));
    events.iter().map(Value::to_string).collect()
}

fn ollama(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
    let mut messages: Vec<_> =
        dice.pieces(&meant.reasoning).iter().map(|it| json!({ "content": "", "thinking": it })).collect();
    let pieces = dice.pieces(&meant.text);
    messages.extend(pieces.iter().map(|it| json!({ "content": it })));
    let calls: Value = meant
        .calls
        .iter()
        .map(|(id, name, input)| json!({ "id": id, "function": { "name": name, "arguments": written(input, dice) } }))
        .collect();
    messages.push(json!({ "tool_calls": calls }));
    let mut events: Vec<_> = messages.iter().map(|it| json!({ "message": it, "done": false })).collect();
    let mut last = json!({ "content": "" });
    if pieces.iter().filter(|it| !it.is_empty()).count() > 1 && dice.roll(2) == 0 {
        last["content"] = json!(meant.text);
    }
    if dice.roll(2) == 0 {
        last["tool_calls"] = calls;
    }
    events.push(json!({ "message": last, "done": true, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 4.0 }));
    events.iter().map(Value::to_string).collect()
}

/// Returns what was read, as text.
fn understood(read: &Read) -> Result<(MeantAnswer, bool), String> {
    let mut meant = MeantAnswer { reasoning: String::new(), text: String::new(), calls: Vec::new() };
    let mut calls: Vec<(String, String, String, bool)> = Vec::new();
    let mut counted = false;
    for event in &read.events {
        match event {
            ModelEvent::Text(text) => meant.text.push_str(text),
            ModelEvent::Reasoning(text) => meant.reasoning.push_str(text),
            ModelEvent::CallStarted { provider_call_id, tool_name, .. } => {
                calls.push((provider_call_id.clone(), tool_name.clone(), String::new(), false));
            }
            ModelEvent::CallArguments { index, delta } => calls[*index].2.push_str(delta),
            ModelEvent::CallFinished { index } => calls[*index].3 = true,
            ModelEvent::Finished { usage, .. } => {
                counted = usage.is_some_and(|it| (it.input_tokens, it.output_tokens) == (3, 4));
            }
            ModelEvent::Alive | ModelEvent::Source { .. } | ModelEvent::File { .. } => {}
        }
    }
    for (id, name, arguments, ended) in calls {
        let arguments = if arguments.is_empty() { "{}" } else { &arguments };
        let input = serde_json::from_str(arguments).map_err(|error| format!("{arguments}: {error}"))?;
        if !ended {
            return Err(format!("call {id} did not end"));
        }
        meant.calls.push((id, name, input));
    }
    // A call that only the whole message has follows the others.
    meant.calls.sort_by(|one, other| one.0.cmp(&other.0));
    match &read.error {
        None => Ok((meant, counted)),
        Some(error) => Err(error.clone()),
    }
}

type AnswerWriter = fn(&MeantAnswer, &mut Dice) -> Vec<String>;

#[test]
fn fuzz_an_answer_is_read_as_it_is_meant_wherever_and_how_often_it_is_said() {
    let tellers: [AnswerWriter; WIRES.len()] = [chat, responses, anthropic, gemini, ollama];
    let cases = (0..WIRES.len(), meant());
    for_a_while("answers in other places", &cases, |(n, (meant, mut dice))| {
        let events = tellers[n](&meant, &mut dice);
        let mut bytes = String::new();
        for event in &events {
            match WIRES[n].framing {
                Framing::JsonLines => bytes.push_str(&format!("{event}\n")),
                Framing::Sse => bytes.push_str(&format!("data: {event}\n\n")),
            }
        }
        let read = read(WIRES[n], vec![Bytes::from(bytes)]);
        let read = understood(&read).map_err(|why| TestCaseError::fail(format!("{why}: {events:#?}")))?;
        prop_assert_eq!(read, (meant, true), "{:?}: {:#?}", WIRES[n], events);
        Ok(())
    });
}
