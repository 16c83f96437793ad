//! Tests of the readers with given bytes, and of the writers with given conversations. The module `tests` of a wire has its
//! [`Sample`] and its own tests.

mod notes;
mod parts;
mod places;
mod reports;

use super::openai::WIRE as CHAT;
use super::*;
use crate::OWN_FIELDS;
use crate::{ModelCall, ModelMessage, Speaker, ToolChoice, ToolDefinition};
use holdpoint_core::turn::FinishReason;
use holdpoint_core::wire_id;
use serde_json::json;
use std::fmt::Write as _;
use std::sync::Arc;

pub(super) use parts::{Dice, Part, Position, StreamWriter};
pub(super) use places::{AnswerWriter, MeantAnswer, MeantCall, object_or_text, places};

/// The facts about one wire that the tests of all wires compare.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// The URL of a request to the model `m` at `http://127.0.0.1:9/v1/`.
    pub(super) url: &'static str,
    /// The headers of a request with the key `k`.
    pub(super) headers: &'static [(&'static str, &'static str)],
    /// The fields of a body that `model.options` may replace.
    pub(super) replaceable: &'static [&'static str],
    /// Error events with the message `no`, each with the begin of the error that is read.
    pub(super) errors: &'static [(&'static str, &'static str)],
    /// A stream that ends within a call, if the wire has an event for the end of a call.
    pub(super) unfinished_call: Option<&'static str>,
    /// Returns the body of a request with the test's conversation.
    pub(super) conversation: fn() -> Value,
    /// Asserts that the state of an answer returns at its position.
    pub(super) returns_state: fn(),
    pub(super) streams: StreamWriter,
    /// Writes answers that say the same in other places, and twice.
    pub(super) elsewhere: AnswerWriter,
}

#[test]
fn each_wire_has_a_provider_of_its_own() {
    let names: BTreeSet<_> = Provider::all().map(Provider::as_str).collect();
    assert_eq!(names.len(), 1 + WIRES.len(), "{names:?}");
    for wire in WIRES {
        assert_eq!(Wire::by_name(wire.as_str()).map(Wire::as_str), Some(wire.as_str()));
    }
}

#[test]
fn a_request_has_the_url_the_headers_and_the_fields_of_its_wire() {
    let tool = ToolDefinition { name: "go".into(), description: "Goes.".into(), input_schema: json!({}) };
    for wire in WIRES {
        let Sample { url, headers, replaceable, .. } = wire.sample;
        let remote = remote(wire, "http://127.0.0.1:9/v1/", "k", &json!({})).unwrap();
        let with_tools =
            ModelRequest { tools: vec![Arc::new(tool.clone())], ..conversation(Speaker::Another) };
        for request in [conversation(Speaker::Another), with_tools] {
            let sent = remote.request(&request);
            assert_eq!(sent.url().as_str(), url);
            let mut found: Vec<_> =
                sent.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
            let mut expected = headers.to_vec();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{wire:?}");
            for field in (wire.body)("m", &request, &wire.written_tools()).keys() {
                let is_own = OWN_FIELDS.contains(&field.as_str());
                assert!(is_own != replaceable.contains(&field.as_str()), "{wire:?}: {field}");
            }
        }
    }
}

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
    read_typed(wire, pieces, None)
}

/// Reads these chunks as a response with this other content type.
fn read_typed(wire: Wire, pieces: Vec<Bytes>, other_type: Option<&str>) -> Read {
    let (chunks, other_type) = (stream::iter(pieces).map(Ok), other_type.map(str::to_owned));
    let events = events(wire, chunks, other_type, Duration::from_secs(30)).collect::<Vec<_>>();
    let events = RUNTIME.with(|runtime| runtime.block_on(events));
    let mut read = Read { events: Vec::new(), error: None };
    for event in events {
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
pub(super) fn line(wire: Wire, text: &str) -> String {
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
                write!(line, "{}{}{}", word(*reason), usage.unwrap_or_default(), state.unwrap_or_default())
            }
        };
    }
    line.push_str(&read.error.unwrap_or_default());
    line
}

fn word(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content-filter",
        FinishReason::ToolCalls => "tool-calls",
        FinishReason::Error => "error",
        FinishReason::Other => "other",
    }
}

#[test]
fn errors_in_a_stream_are_classified_by_whether_a_retry_may_help() {
    for wire in WIRES {
        let errors = wire.sample.errors;
        assert!(!errors.is_empty(), "{wire:?}");
        for (event, starts) in errors {
            assert_eq!(line(wire, &format!("{event}\n\n")), format!("{starts}error in the stream: no"));
        }
    }
}

#[rustfmt::skip]
pub(super) fn conversation(speaker: Speaker) -> ModelRequest {
    let call = |id: &str| ModelCall { id: id.into(), tool_name: "go".into(), input: json!({"b": 1, "a": 2}).as_object().cloned().unwrap() };
    let tool = |id: &str| ModelMessage::Tool { call_id: id.into(), tool_name: "go".into(), text: "done".into() };
    let assistant = ModelMessage::Assistant { text: "Hm.".into(), calls: vec![call("1"), call("a b")], speaker };
    let user = |text: &str| ModelMessage::User(text.into());
    ModelRequest { system: Some("s".into()), messages: vec![user("x"), user("y"), assistant, tool("1"), tool("a b")], tools: vec![], tool_choice: ToolChoice::Auto }
}

/// Returns the second id of the conversation in the form that servers with strict ids accept.
pub(super) fn plain_id() -> String {
    wire_id::candidates("a b").next().unwrap()
}

pub(super) fn written(wire: Wire, provider_state: Option<Value>) -> Value {
    Value::Object((wire.body)("m", &conversation(Speaker::Same { provider_state }), &wire.written_tools()))
}

#[test]
fn a_conversation_is_written_in_the_format_of_each_wire() {
    for wire in WIRES {
        assert_eq!(written(wire, None), (wire.sample.conversation)());
    }
}

/// Returns these events as a stream.
pub(super) fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// Returns the provider state that is read from a stream.
pub(super) fn state(wire: Wire, stream: &str) -> Option<Value> {
    let read = read(wire, vec![Bytes::copy_from_slice(stream.as_bytes())]);
    let Some(ModelEvent::Finished { provider_state, .. }) = read.events.last().cloned() else {
        panic!("{read:?}")
    };
    provider_state
}

#[test]
fn provider_state_returns_to_the_server_at_its_position() {
    for wire in WIRES {
        (wire.sample.returns_state)();
    }
}

/// Returns how often the name of the tool is in a conversation whose state names one of two calls.
pub(super) fn names_in_a_state_with_one_call(wire: Wire) -> usize {
    let kept = Some(json!([{"type": "thinking"}, {"call": 1, "id": "x"}]));
    written(wire, kept).to_string().matches(r#""name":"go""#).count()
}

#[test]
fn calls_of_another_model_get_ids_and_names_that_this_model_accepts() {
    let call = |id: &str, name: &str| ModelCall { id: id.into(), tool_name: name.into(), input: Map::new() };
    let ids = ["toolu_1", "functions.go:0", &"x".repeat(41), ""];
    let names = ["delete_file-2", "functions.delete file", &"x".repeat(99), ""];
    let calls: Vec<_> = ids.iter().zip(names).map(|(id, name)| call(id, name)).collect();
    let accepted = |speaker| {
        let assistant = ModelMessage::Assistant { text: String::new(), calls: calls.clone(), speaker };
        let answers = calls.iter().map(|call| ModelMessage::Tool {
            call_id: call.id.clone(),
            tool_name: call.tool_name.clone(),
            text: "done".into(),
        });
        let messages: Vec<_> = std::iter::once(assistant).chain(answers).collect();
        let entries = conversation::entries(&messages, conversation::Ids::Own);
        let [conversation::Entry::Step(step)] = &entries[..] else { panic!("one step") };
        let ids: Vec<String> = step.calls.iter().map(|call| call.id.to_string()).collect();
        let answered: Vec<String> = step.answers.iter().map(|answer| answer.id.to_string()).collect();
        assert_eq!(ids, answered);
        let names: Vec<String> = step.calls.iter().map(|call| call.name.to_string()).collect();
        (ids, names)
    };
    let fitting = ["delete_file-2", "functions_delete_file", &"x".repeat(64), "_"];
    let (own, names) = accepted(Speaker::Same { provider_state: None });
    assert_eq!((own, names), (ids.map(str::to_owned).to_vec(), fitting.map(str::to_owned).to_vec()));
    let (foreign, names) = accepted(Speaker::Another);
    assert_eq!(names, fitting.map(str::to_owned).to_vec());
    assert_eq!(
        foreign,
        ids.map(|id| wire_id::candidates(id).next().unwrap()),
        "one form, which every server takes"
    );
}

#[test]
fn two_calls_never_have_the_same_id() {
    // The first form of the id of another model is the id that this model made later.
    let form = wire_id::candidates("call_of_another").next().unwrap();
    let call = |id: &str| ModelCall { id: id.into(), tool_name: "go".into(), input: Map::new() };
    let step =
        |id: &str, speaker| ModelMessage::Assistant { text: String::new(), calls: vec![call(id)], speaker };
    let answer =
        |id: &str| ModelMessage::Tool { call_id: id.into(), tool_name: "go".into(), text: "done".into() };
    let own = || Speaker::Same { provider_state: None };
    let of_another = [step("call_of_another", Speaker::Another), answer("call_of_another")];
    let of_this = [step(&form, own()), answer(&form)];
    let ids = |messages: &[ModelMessage]| -> Vec<String> {
        let entries = conversation::entries(messages, conversation::Ids::Own);
        let steps = entries.iter().map(|entry| match entry {
            conversation::Entry::Step(step) => {
                assert_eq!(step.calls[0].id, step.answers[0].id);
                step.calls[0].id.to_string()
            }
            conversation::Entry::User(_) => panic!("no user"),
        });
        steps.collect()
    };
    let second = wire_id::candidates(&form).next().unwrap();
    assert_eq!(ids(&[&of_another[..], &of_this[..]].concat()), [form.clone(), second]);
    let second = wire_id::candidates("call_of_another").nth(1).unwrap();
    assert_eq!(ids(&[&of_this[..], &of_another[..]].concat()), [form, second]);
}

#[test]
fn the_speakers_alternate_on_every_wire_and_nothing_sent_changes() {
    let user = |text: &str| ModelMessage::User(text.into());
    let call = ModelCall { id: "a".into(), tool_name: "go".into(), input: Map::new() };
    let speaker = || Speaker::Same { provider_state: None };
    let step = ModelMessage::Assistant { text: String::new(), calls: vec![call], speaker: speaker() };
    let answer = ModelMessage::Tool { call_id: "a".into(), tool_name: "go".into(), text: "done".into() };
    let words = ModelMessage::Assistant { text: "Hm.".into(), calls: Vec::new(), speaker: speaker() };
    let messages = [user("1"), user("2"), step, answer, user("note"), user("3"), words, user("4"), user("5")];
    for wire in WIRES {
        let written = |count: usize| {
            let messages = messages[..count].to_vec();
            let request =
                ModelRequest { system: None, messages, tools: vec![], tool_choice: ToolChoice::Auto };
            let body = (wire.body)("m", &request, &wire.written_tools());
            let list = ["messages", "input", "contents"].iter().find_map(|list| body.get(*list)).unwrap();
            list.as_array().unwrap().clone()
        };
        let whole = written(messages.len());
        for count in 1..messages.len() {
            assert!(whole.starts_with(&written(count)), "{wire:?}");
        }
        let fillers = whole.iter().filter(|message| message.to_string().contains("(no reply)")).count();
        assert_eq!(fillers, 4, "{wire:?}: {whole:#?}");
        let is_user = |message: &Value| message["role"] == "user" && !message.to_string().contains("done");
        assert!(whole.windows(2).all(|pair| !(is_user(&pair[0]) && is_user(&pair[1]))), "{wire:?}");
    }
}

#[test]
fn unfinished_calls_are_not_emitted_as_complete() {
    let streams = WIRES.iter().filter_map(|wire| Some((*wire, wire.sample.unfinished_call?)));
    let mut wires = 0;
    for (wire, stream) in streams {
        assert_eq!(line(wire, stream), "<0 go#a tool-calls", "{wire:?}");
        wires += 1;
    }
    assert!(wires >= 2, "the wires with an event for the end of a call");
}

/// Returns the line that is read from these events.
pub(super) fn line_of(wire: Wire, events: &[&str]) -> String {
    line(wire, &events.iter().map(|event| framed(wire, event)).collect::<String>())
}

/// Returns an event as the bytes of a stream.
fn framed(wire: Wire, event: &str) -> String {
    match wire.framing {
        Framing::JsonLines => format!("{event}\n"),
        Framing::Sse => format!("data: {event}\n\n"),
    }
}

pub(super) const FAILED: &str = "the model's server failed: ";
pub(super) const UNAVAILABLE: &str = "the model's server is unavailable: ";
pub(super) const MALFORMED: &str = "the model's server sent a malformed answer: ";

#[test]
fn events_are_split_as_the_sse_standard_requires() {
    let hm = r#"{"choices":[{"delta":{"content":"Hm."},"finish_reason":"stop"}]}"#;
    for before in ["data:\n\n", "data\n\n", "database: x\n\n", ": x\n\n"] {
        assert_eq!(line(CHAT, &format!("{before}data: {hm}\n\n")), "Hm. stop", "{before:?}");
    }
    // In mid-stream, a byte order mark makes the line an unknown field.
    let marked = format!("data: {hm}\n\n\u{feff}data: nonsense\n\n");
    assert_eq!(line(CHAT, &marked), "Hm. stop");
    let two_lines = hm.replacen("Hm.", "\ndata: ", 1);
    assert!(line(CHAT, &format!("data: {two_lines}\n\n")).starts_with(MALFORMED));
    let long = "x".repeat(5 << 20);
    let joined = format!("data: {long}\ndata: {long}\n\n");
    assert_eq!(line(CHAT, &joined), format!("{MALFORMED}an event is too long"));
}

#[test]
fn overlong_names_and_ids_of_calls_are_not_kept() {
    let started = |id: usize, name: usize| {
        let call = json!({"function": {"name": "n".repeat(name), "arguments": "{}"}, "id": "i".repeat(id)});
        let data = json!({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]});
        let read = read(CHAT, vec![format!("data: {data}\n\n").into()]);
        let Some(ModelEvent::CallStarted { provider_call_id, tool_name, .. }) = read.events.first() else {
            panic!("{read:?}")
        };
        (provider_call_id.len(), tool_name.len())
    };
    assert_eq!(started(16 << 10, 256), (16 << 10, 256));
    assert_eq!(started((16 << 10) + 1, 3), (0, 3));
    assert!(started(1, 5000).1 <= 256);
}

fn remote(wire: Wire, base_url: &str, key: &str, options: &Value) -> Result<Remote, RemoteError> {
    let (base_url, api_key) = (Some(base_url.to_owned()), Some(key.into()));
    let options = options.as_object().cloned().unwrap();
    let idle_timeout = Duration::from_secs(60);
    Remote::new(RemoteConfig { wire, id: "m".to_owned(), base_url, api_key, options, idle_timeout })
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
    let (url, headers, body) = request(CHAT, "", &options);
    assert_eq!(url, "http://127.0.0.1:9/v1/chat/completions");
    assert_eq!(headers.get("authorization"), None, "no key, no header");
    assert_eq!((body.get("stream_options"), &body["temperature"]), (None, &json!(0.5)));
}

#[test]
fn a_base_url_with_a_query_fragment_or_credentials_is_refused() {
    for bad in ["http://a/v1?key=s", "http://a/v1#s", "http://s@a/v1", "http://:s@a/v1", "ftp://a/v1", "a/v1"]
    {
        let error = remote(CHAT, bad, "", &json!({})).err();
        assert!(matches!(error, Some(RemoteError::BaseUrl(_))), "{bad}");
    }
}

#[test]
fn an_error_for_the_log_is_one_short_line_without_the_key() {
    let http = remote(CHAT, "http://a/v1", "sk-never", &json!({})).unwrap().http;
    let error = format!("bad key sk-never\nERROR forged {}", "x".repeat(5000));
    let logged = http.harmless(ModelError::Upstream(error)).to_string();
    assert!(logged.contains("bad key [key] ERROR forged") && logged.len() < 600, "{logged}");
    for body in [r#"{"detail":"no"}"#, r#"[{"error":{"message":"no"}}]"#, r#"{"error":"no"}"#, "no"] {
        assert_eq!(transport::words(body), "no");
    }
}

#[test]
fn blank_texts_and_long_ids_are_rewritten_for_the_servers_that_refuse_them() {
    let call = |id: &str| ModelCall { id: id.into(), tool_name: "go".into(), input: Map::new() };
    let long = "x".repeat(65);
    let assistant = ModelMessage::Assistant {
        text: String::new(),
        calls: vec![call(&long)],
        speaker: Speaker::Same { provider_state: None },
    };
    let answer = ModelMessage::Tool { call_id: long.clone(), tool_name: "go".into(), text: "done".into() };
    let messages = vec![ModelMessage::User(" \n".into()), assistant, answer];
    let request = ModelRequest { system: None, messages, tools: vec![], tool_choice: ToolChoice::Auto };
    let written = |wire: Wire| Value::Object((wire.body)("m", &request, &wire.written_tools()));
    let chat = written(CHAT);
    assert_eq!(chat["messages"][1]["content"], Value::Null);
    assert_eq!(chat["messages"][1]["tool_calls"][0]["id"], *long, "its own");
    let anthropic = written(super::anthropic::WIRE);
    assert_eq!(anthropic["messages"][0]["content"], "(blank)");
    assert_eq!(anthropic["messages"][1]["content"].as_array().unwrap().len(), 1, "no blank words");
    let id = anthropic["messages"][1]["content"][0]["id"].as_str().unwrap();
    assert!(id.len() <= 64 && anthropic["messages"][2]["content"][0]["tool_use_id"] == id, "{id}");
    let gemini = written(super::gemini::WIRE);
    assert_eq!(gemini["contents"][0]["parts"], json!([{"text": "(blank)"}]));
    assert_eq!(gemini["contents"][1]["parts"].as_array().unwrap().len(), 1, "no blank words");
}
