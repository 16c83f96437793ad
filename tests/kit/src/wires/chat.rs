//! `/chat/completions` of OpenAI and of many other servers.

use super::offered::{ACCEPTED, ToolRules, offered};
use super::strict::{ANNOUNCED, DONE, Script, StrictServer, THOUGHTS, halves, seal};
use super::{Ending, Facts, Foreign, Protocol, Refusal, ScriptedAnswer, Wire};
use crate::valid_history::faults::{
    BEGIN, Cut, Double, Is, LAST, LATE, LONELY, MIXED_UP, REFUSED, RequestFault, Swap, UNANSWERED,
};
use crate::valid_history::{
    Answer, Call, Conversation, Entry, Speaker, answer, arguments, list, look, spoken, text,
};
use serde_json::{Value, json};

#[derive(Debug)]
struct Chat;

pub const WIRE: Wire = &Chat;

static FACTS: Facts = Facts {
    provider: "openai",
    base_path: "/v1",
    path: "/chat/completions",
    is_sse: true,
    names_events: false,
    writes_arguments: true,
    reports_overload: true,
    has_sources: true,
    separates_texts: false,
    marks_the_end: true,
    continues_after_the_reason: true,
    needs_its_first_events: false,
    answers_name_tools: false,
    calls_need_ids: true,
    id_field: "id",
    last_data: Some("[DONE]"),
    sign_of_life: ": still here\n\n",
    odd_sources: &[
        r#"{"choices":[{"index":0,"delta":{"annotations":null}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"annotations":["x",{"type":"file","file":{}}]}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"annotations":[{"url_citation":{"url":5}}]}}]}"#,
    ],
    tools: ToolRules { name: "/function/name", schema: "/function/parameters", ..ACCEPTED },
    early_reason: Some(r#"{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}"#),
    // A server of this kind that takes its own refusal for a fault. It is not asked again.
    too_long: Refusal {
        status: 500,
        body: r#"{"error":{"message":"This model's maximum context length is 8 tokens. However, you requested 9."}}"#,
    },
    forbids_calls: Some(|body| body["tool_choice"] == "none"),
    strict_servers: &SERVERS,
    state_form: "fields of the message",
    foreign: Foreign {
        model: "deepseek-reasoner",
        options: "{}",
        key: ("authorization", "Bearer sk-nobody"),
        thinks: true,
        counts: true,
    },
};

impl Protocol for Chat {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn error(&self, overloaded: bool, words: &str) -> Value {
        match overloaded {
            true => json!({ "error": { "message": words, "type": "server_error", "code": 503 } }),
            false => json!({ "error": { "message": words, "type": "invalid_request_error", "code": 400 } }),
        }
    }

    fn begin(&self) -> Option<Value> {
        Some(
            json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "" } }] }),
        )
    }

    fn words(&self, answer: ScriptedAnswer, _at: usize, pieces: &[&str]) -> ScriptedAnswer {
        pieces.iter().fold(answer, |answer, piece| answer.delta(&json!({ "content": piece })))
    }

    fn thinks(&self, answer: ScriptedAnswer, _at: usize, pieces: &[&str]) -> ScriptedAnswer {
        pieces.iter().fold(answer, |answer, piece| answer.delta(&json!({ "reasoning_content": piece })))
    }

    fn source(&self, answer: ScriptedAnswer, _at: usize, url: &str, title: Option<&str>) -> ScriptedAnswer {
        let page = json!({ "url": url, "title": title, "start_index": 0, "end_index": 1 });
        answer.delta(&json!({ "annotations": [{ "type": "url_citation", "url_citation": page }] }))
    }

    fn begin_call(
        &self,
        answer: ScriptedAnswer,
        _at: usize,
        number: usize,
        id: &str,
        tool: &str,
        arguments: &[&str],
    ) -> ScriptedAnswer {
        let begin = json!({ "index": number, "id": id, "type": "function", "function": { "name": tool, "arguments": "" } });
        let started = answer.delta(&json!({ "tool_calls": [begin] }));
        arguments.iter().fold(started, |answer, piece| {
            let more = json!({ "index": number, "function": { "arguments": piece } });
            answer.delta(&json!({ "tool_calls": [more] }))
        })
    }

    fn end_call(
        &self,
        answer: ScriptedAnswer,
        _at: usize,
        _id: &str,
        _tool: &str,
        _whole: &str,
    ) -> ScriptedAnswer {
        answer
    }

    fn ends(&self, answer: ScriptedAnswer, why: Ending) -> ScriptedAnswer {
        let reason = why.word("stop", "tool_calls", "length", "content_filter");
        answer.json(&json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }))
                    .json(&json!({ "id": "c", "object": "chat.completion.chunk", "choices": [], "usage": { "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 } }))
                    .event("[DONE]")
    }

    fn nonsense(&self) -> Vec<(&'static str, ScriptedAnswer)> {
        let on = || ScriptedAnswer::on(WIRE);
        let whole = r#"{"note":"1"}"#;
        let named =
            |name: &str| json!([{ "index": 0, "id": "a", "function": { "name": name, "arguments": "" } }]);
        let written = json!([{ "index": 0, "function": { "arguments": whole } }]);
        let elsewhere = json!([{ "index": 7, "function": { "arguments": whole } }]);
        let calls = |deltas: &[&Value]| deltas.iter().fold(on(), |answer, piece| answer.event(pieces(piece)));
        let finish = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] });
        let finish = |answer: ScriptedAnswer| answer.event(finish.to_string()).event("[DONE]");
        vec![
            ("one call with two names", finish(calls(&[&named("pay"), &named("look"), &written]))),
            ("arguments before a name", finish(calls(&[&written, &named("pay")]))),
            ("arguments for a call that never began", finish(calls(&[&named("pay"), &elsewhere]))),
            ("a call without a name", finish(calls(&[&named(""), &written]))),
            ("it ends for calls and makes none", finish(on())),
        ]
    }

    fn read(&self, body: &Value) -> Result<Conversation, String> {
        read(body)
    }

    #[rustfmt::skip]
    fn valid_body(&self) -> Value {
        let user = || json!({"role": "user", "content": "go"});
        let system = || json!({"role": "system", "content": "be kind"});
        let last = || json!({"role": "assistant", "content": "done"});
            let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}});
            let reported = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "seen"});
            json!({"messages": [system(), user(),
                {"role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b")]}, reported("a"), reported("b"),
                {"role": "assistant", "content": null, "tool_calls": [call("c")]}, reported("c"), last(), user(),
            ], "tools": [{"type": "function", "function": {"name": "look", "parameters": look()}}]})

    }

    #[rustfmt::skip]
    fn faults(&self) -> Vec<(&'static str, RequestFault, &'static str)> {
        vec![
            ("/messages", Cut(4), UNANSWERED),
            ("/messages", Swap(4, 8), UNANSWERED),
            ("/messages", Double(4), "3 answers for 2 calls"),
            ("/messages", Swap(3, 4), MIXED_UP),
            ("/messages", Cut(2), LONELY),
            ("/messages", Cut(8), LAST),
            ("/messages", Is(json!([])), "nobody says anything"),
            ("/messages", Is(json!(null)), "messages is no list"),
            ("/messages/0/content", Is(json!("")), "System says nothing"),
            ("/messages/1/content", Is(json!("")), "User says nothing"),
            ("/messages/3/content", Is(json!("")), "content says nothing"),
            ("/messages/7/content", Is(json!("")), "Model says nothing"),
            ("/messages/7/content", Is(json!(null)), "content is no text"),
            ("/messages/7", Is(json!({"role": "assistant", "content": "x", "tool_calls": []})), "these calls cannot be"),
            ("/messages/2/role", Is(json!("user")), "these calls cannot be"),
            ("/messages/1/role", Is(json!(null)), REFUSED),
            ("/messages/1/role", Is(json!("bot")), REFUSED),
            ("/messages/1/role", Is(json!("assistant")), BEGIN),
            ("/messages/8/role", Is(json!("system")), LATE),
            ("/messages/5/tool_calls/0/id", Is(json!("a")), "the id a is there twice"),
            ("/messages/2/tool_calls/1/id", Is(json!("a")), "the id a is there twice"),
            ("/messages/2/tool_calls/0/id", Is(json!("")), "id says nothing"),
            ("/messages/2/tool_calls/0/function/name", Is(json!("look up")), "\"look up\", which is no name"),
            ("/messages/2/tool_calls/0/type", Is(json!(null)), "it calls no function"),
            ("/messages/2/tool_calls/0/function/name", Is(json!("")), "name says nothing"),
            ("/messages/2/tool_calls/0/function/arguments", Is(json!("{")), "no JSON: {"),
            ("/messages/2/tool_calls/0/function/arguments", Is(json!("[]")), "no JSON object: []"),
            ("/messages/2/tool_calls/0/function/arguments", Is(json!({})), "arguments are no text"),
            ("/tools", Double(0), "the tool look is offered twice"),
            ("/tools/0/function/name", Is(json!(null)), "a tool has no name"),
        ]
    }
}

impl ScriptedAnswer {
    /// Appends a choice with this delta.
    fn delta(self, delta: &Value) -> Self {
        self.json(&json!({ "id": "c", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta }] }))
    }
}

/// A chat event with these call deltas.
fn pieces(calls: &Value) -> String {
    json!({ "choices": [{ "index": 0, "delta": { "tool_calls": calls } }] }).to_string()
}

/// `/chat/completions`: arguments are text, answers name their call.
fn read(body: &Value) -> Result<Conversation, String> {
    let call = |call: &Value| {
        if call["type"] != "function" {
            return Err(format!("it calls no function: {call}"));
        }
        let (id, function) = (text(call, "id")?, &call["function"]);
        Ok(Call { id: Some(id), tool: text(function, "name")?, arguments: arguments(function)? })
    };
    let answer = |message: &Value| {
        let id = Some(text(message, "tool_call_id")?);
        Ok(Answer { id, tool: None, text: text(message, "content")? })
    };
    messages(&FACTS.tools, body, call, answer)
}

/// Reads the list of messages of this wire and of Ollama.
pub(super) fn messages(
    tools: &ToolRules,
    body: &Value,
    read_call: impl Fn(&Value) -> Result<Call, String>,
    read_answer: impl Fn(&Value) -> Result<Answer, String>,
) -> Result<Conversation, String> {
    let mut entries = Vec::new();
    for message in list(body, "messages")? {
        let calls = match &message["tool_calls"] {
            Value::Null => Vec::new(),
            Value::Array(calls) if message["role"] == "assistant" && !calls.is_empty() => {
                calls.iter().map(&read_call).collect::<Result<_, _>>()?
            }
            _ => return Err(format!("these calls cannot be: {message}")),
        };
        let words = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Null if !calls.is_empty() => String::new(),
            _ => return Err(format!("content is no text: {message}")),
        };
        match message["role"].as_str() {
            Some("system") => entries.push(Entry::Words { by: Speaker::System, text: words }),
            Some("user") => entries.push(Entry::Words { by: Speaker::User, text: words }),
            Some("assistant") => entries.push(spoken(words, calls)),
            Some("tool") => answer(&mut entries, read_answer(message)?),
            _ => return Err(format!("a role that there is not: {message}")),
        }
    }
    Ok(Conversation { entries, tools: offered(tools, body)? })
}

/// Three kinds of servers. Each would accept the state of another as its own.
static SERVERS: [StrictServer; 3] = [
    StrictServer { wire: WIRE, base: "/deepseek/v1", thinks: true, answers: deepseek },
    StrictServer { wire: WIRE, base: "/openrouter/v1", thinks: true, answers: openrouter },
    StrictServer { wire: WIRE, base: "/v1beta/openai", thinks: false, answers: google },
];

fn chunk(delta: Value) -> Value {
    json!({ "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

#[rustfmt::skip]
fn chunks_at_the_end(reason: &str) -> [Value; 2] {
    [
        json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}),
        json!({"object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 8}}),
    ]
}

/// The answers of every server of this wire; `seals` are the deltas before its text, `extra` belongs to its
/// first call.
#[rustfmt::skip]
fn scripts(seals: Vec<Value>, extra: &Value, back: Value) -> [Script; 2] {
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
    let first = events.into_iter().map(chunk).chain(chunks_at_the_end("tool_calls")).collect();

    let mut back_first = json!({"role": "assistant", "content": ANNOUNCED, "tool_calls": [
        {"id": "call_list", "extra_content": extra, "function": {"name": "list_files", "arguments": "{}"}},
        {"id": "call_delete", "extra_content": null, "function": {"name": "delete_file", "arguments": "{\"path\":\"old.txt\"}"}},
    ]});
    back_first.as_object_mut().unwrap().extend(back.as_object().unwrap().clone());

    // Such servers also require the reasoning before the last text of a turn with calls.
    let pieces = seals.into_iter().filter(|seal| seal.get("reasoning_content").is_some());
    let last = pieces.chain([json!({"content": DONE})]).map(chunk).chain(chunks_at_the_end("stop")).collect();
    let thoughts = back.get("reasoning_content");
    let back_last = json!({"role": "assistant", "content": DONE, "reasoning_content": thoughts, "tool_calls": null});
    [Script { events: first, back: vec![back_first] }, Script { events: last, back: vec![back_last] }]
}

fn deepseek() -> [Script; 2] {
    let thoughts = halves(THOUGHTS).map(|half| json!({ "reasoning_content": half, "content": null }));
    scripts(thoughts.to_vec(), &Value::Null, json!({ "reasoning_content": THOUGHTS }))
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
    scripts(seals, &Value::Null, json!({"reasoning_details": [thought(THOUGHTS, &signature), secret]}))
}

fn google() -> [Script; 2] {
    let extra = json!({ "google": { "thought_signature": seal("thought") } });
    scripts(Vec::new(), &extra, json!({}))
}
