//! Tests of the wire `:streamGenerateContent`.

use super::*;
use crate::remote::tests::{
    self, Dice, MALFORMED, MeantAnswer, MeantCall, Part, Position, Sample, StreamWriter, UNAVAILABLE,
    line_of, names_in_a_state_with_one_call, sse, state, written,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The wire in the tests of all wires.
pub(super) const SAMPLE: Sample = Sample {
    url: "http://127.0.0.1:9/v1/models/m:streamGenerateContent?alt=sse",
    headers: &[("x-goog-api-key", "k")],
    replaceable: &[],
    errors: &[(r#"data: {"error":{"code":503,"status":"UNAVAILABLE","message":"no"}}"#, UNAVAILABLE)],
    unfinished_call: None,
    conversation,
    returns_state,
    streams: StreamWriter { has: |_| true, write, finish, separates: false, done: None },
    elsewhere,
};

#[rustfmt::skip]
fn conversation() -> Value {
    let input = json!({"b": 1, "a": 2});
    let answer = |id: &str| json!({"functionResponse": {"id": id, "name": "go", "response": {"result": "done"}}});
    json!({"systemInstruction": {"parts": [{"text": "s"}]}, "contents": [
        {"role": "user", "parts": [{"text": "x"}]}, {"role": "model", "parts": [{"text": "(no reply)"}]},
        {"role": "user", "parts": [{"text": "y"}]},
        {"role": "model", "parts": [{"text": "Hm."}, {"functionCall": {"id": "1", "name": "go", "args": input}},
            {"functionCall": {"id": "a b", "name": "go", "args": input}}]},
        {"role": "user", "parts": [answer("1"), answer("a b")]},
    ], "tools": [{"functionDeclarations": [{"name": "go", "description": "Not available now.",
        "parametersJsonSchema": {"type": "object", "properties": {}}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}})
}

#[rustfmt::skip]
fn returns_state() {
    let parts = |parts: Value| json!({"candidates": [{"content": {"parts": parts}}]});
    let kept = state(WIRE, &sse(&[
        parts(json!([{"text": "So.", "thought": true}])), parts(json!([{"text": "H"}])), parts(json!([{"text": "m."}])),
        parts(json!([{"functionCall": {"name": "go"}, "thoughtSignature": "c2ln"}, {"functionCall": {"name": "go"}}])),
        parts(json!([{"text": "", "thoughtSignature": "ZW5k"}])), json!({"candidates": [{"finishReason": "STOP"}]}),
    ]));
    let assistant = &written(WIRE, kept)["contents"][3]["parts"];
    assert_eq!(assistant[0], json!({"text": "Hm."}));
    assert_eq!((&assistant[1]["thoughtSignature"], &assistant[1]["functionCall"]["id"]), (&json!("c2ln"), &json!("1")));
    assert_eq!((assistant[2].get("thoughtSignature"), &assistant[2]["functionCall"]["id"]), (None, &json!("a b")));
    assert_eq!(assistant[3], json!({"text": "", "thoughtSignature": "ZW5k"}));
}

fn write(part: &Part, _: Position, dice: &mut Dice, events: &mut Vec<Value>) {
    let mut push = |part: Value| events.push(json!({ "candidates": [{ "content": { "parts": [part] } }] }));
    match part {
        Part::Text(text) => dice.pieces(text).iter().for_each(|it| push(json!({ "text": it }))),
        Part::Reasoning(text) => {
            dice.pieces(text).iter().for_each(|it| push(json!({ "text": it, "thought": true })));
        }
        Part::Call { id, name, arguments } => {
            push(json!({ "functionCall": { "id": id, "name": name, "args": arguments } }));
        }
        Part::File(kind, data) => {
            push(json!({ "inlineData": { "mimeType": kind, "data": STANDARD.encode(data) } }));
        }
        Part::Source(url, title) => {
            let chunks = json!([{ "web": { "uri": url, "title": title } }]);
            events.push(json!({ "candidates": [{ "groundingMetadata": { "groundingChunks": chunks } }] }));
        }
    }
}

fn finish(_: bool, events: &mut Vec<Value>) {
    let usage = json!({ "promptTokenCount": 3, "candidatesTokenCount": 4 });
    events.push(json!({ "candidates": [{ "finishReason": "STOP" }], "usageMetadata": usage }));
}

fn elsewhere(meant: &MeantAnswer, dice: &mut Dice) -> Vec<String> {
    let usage = json!({ "promptTokenCount": 3, "candidatesTokenCount": 4 });
    let mut parts: Vec<_> =
        dice.pieces(&meant.reasoning).iter().map(|it| json!({ "text": it, "thought": true })).collect();
    let pieces = dice.pieces(&meant.text);
    parts.extend(pieces.iter().map(|it| json!({ "text": it })));
    let call = |MeantCall { id, name, input }: &MeantCall| json!({ "functionCall": { "id": id, "name": name, "args": input } });
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

#[rustfmt::skip]
#[test]
fn finish_reasons_and_token_counts_are_read() {
    let read = |events: &[&str]| line_of(WIRE, events);
    let parts = |parts: &str, reason: &str| format!(r#"{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"{reason}"}}]}}"#);
    assert_eq!(read(&[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#]), "content-filter");
    assert_eq!(read(&[&parts("", "MALFORMED_FUNCTION_CALL")]), format!("{MALFORMED}it ended with MALFORMED_FUNCTION_CALL"));
    assert_eq!(read(&[&parts("", "")]), format!("{UNAVAILABLE}it broke off before its answer"));
    let (other, stop) = (r#"{"candidates":[{"index":1,"content":{"parts":[{"text":"x"}]}}]}"#, parts("", "STOP"));
    let counted = r#"{"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1,"thoughtsTokenCount":5}}"#;
    let words = parts(r#"{"text":"a"}"#, "");
    assert_eq!(read(&[other, counted, &words, counted, &stop]), "a stop 3/6");
    let call = r#"{"functionCall":{"name":"go","args":null}}"#;
    assert_eq!(read(&[&parts(call, "STOP")]), "<0 go# 0> tool-calls");
    let assistant = r#"{"text":"So.","thought":true,"thoughtSignature":"c"},{"text":"a","thoughtSignature":"d"},{"text":"b"}"#;
    let state = r#"[{"text":"So.","thought":true,"thoughtSignature":"c"},{"text":"a","thoughtSignature":"d"},{"text":"b"}]"#;
    assert_eq!(read(&[&parts(assistant, "STOP")]), format!("(So.) a b stop {state}"));
    assert_eq!(read(&[&parts(r#"{"text":"a"}"#, "STOP")]), "a stop", "nothing that is wanted back");
    let error = read(&[r#"{"error":{"status":"UNAVAILABLE","message":"no"}}"#]);
    assert_eq!(error, format!("{UNAVAILABLE}error in the stream: no"));
    let error = read(&[r#"{"error":{"code":429,"message":"no"}}"#]);
    assert_eq!(error, format!("{UNAVAILABLE}error in the stream: no"));
}

#[test]
fn the_first_call_of_another_model_has_the_signature_for_unsigned_calls() {
    let call = |model: &str, speaker| {
        (WIRE.body)(model, &tests::conversation(speaker), &WIRE.written_tools())["contents"][3]["parts"]
            .clone()
    };
    let unsigned = json!("skip_thought_signature_validator");
    let parts = call("gemini-3", Speaker::Another);
    assert_eq!((&parts[1]["thoughtSignature"], parts[2].get("thoughtSignature")), (&unsigned, None));
    assert_eq!(call("gemini-2.5", Speaker::Another)[1].get("thoughtSignature"), None);
}

#[test]
fn a_call_that_the_state_does_not_name_is_written_as_well() {
    assert_eq!(names_in_a_state_with_one_call(WIRE), 5);
}
