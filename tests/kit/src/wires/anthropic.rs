//! `/messages` of Anthropic.

use super::offered::{ACCEPTED, ToolRules, offered};
use super::strict::{ANNOUNCED, DONE, Script, StrictServer, THOUGHTS, halves, seal};
use super::{Ending, Facts, Foreign, Protocol, Refusal, ScriptedAnswer, Wire};
use crate::valid_history::faults::{
    BEGIN, Cut, Double, Is, LAST, LONELY, MIXED_UP, REFUSED, RequestFault, Swap, UNANSWERED,
};
use crate::valid_history::{Answer, Call, Conversation, Entry, Speaker, is_plain, list, look, spoken, text};
use serde_json::{Value, json};

#[derive(Debug)]
struct Anthropic;

pub const WIRE: Wire = &Anthropic;

static FACTS: Facts = Facts {
    provider: "anthropic",
    base_path: "/v1",
    path: "/messages",
    is_sse: true,
    names_events: true,
    writes_arguments: true,
    reports_overload: true,
    has_sources: true,
    separates_texts: false,
    marks_the_end: true,
    continues_after_the_reason: true,
    needs_its_first_events: true,
    answers_name_tools: false,
    calls_need_ids: true,
    id_field: "id",
    last_data: None,
    sign_of_life: "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    odd_sources: &[],
    tools: ToolRules {
        schema: "/input_schema",
        property: |name| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            (1..=64).contains(&name.len()) && name.chars().all(plain)
        },
        ..ACCEPTED
    },
    early_reason: Some(
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}"#,
    ),
    too_long: Refusal {
        status: 400,
        body: r#"{"error":{"message":"prompt is too long: 213462 tokens > 200000 maximum"}}"#,
    },
    forbids_calls: Some(|body| body["tool_choice"] == json!({ "type": "none" })),
    strict_servers: &SERVERS,
    state_form: "list of items",
    foreign: Foreign {
        model: "claude-sonnet-4-5",
        options: r#"{"max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":1024}}"#,
        key: ("x-api-key", "sk-nobody"),
        thinks: true,
        counts: true,
    },
};

impl Protocol for Anthropic {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn error(&self, overloaded: bool, words: &str) -> Value {
        match overloaded {
            true => json!({ "type": "error", "error": { "type": "overloaded_error", "message": words } }),
            false => {
                json!({ "type": "error", "error": { "type": "invalid_request_error", "message": words } })
            }
        }
    }

    fn begin(&self) -> Option<Value> {
        Some(
            json!({ "type": "message_start", "message": { "id": "msg_1", "role": "assistant", "content": [], "usage": { "input_tokens": 10, "output_tokens": 1 } } }),
        )
    }

    fn words(&self, answer: ScriptedAnswer, at: usize, pieces: &[&str]) -> ScriptedAnswer {
        let block = json!({ "type": "text", "text": "" });
        let started =
            answer.json(&json!({ "type": "content_block_start", "index": at, "content_block": block }));
        let written = pieces.iter().fold(started, |answer, piece| {
            let delta = json!({ "type": "text_delta", "text": piece });
            answer.json(&json!({ "type": "content_block_delta", "index": at, "delta": delta }))
        });
        written.json(&json!({ "type": "content_block_stop", "index": at }))
    }

    fn thinks(&self, mut answer: ScriptedAnswer, at: usize, pieces: &[&str]) -> ScriptedAnswer {
        answer.places += 1;
        let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
        let started =
            answer.json(&json!({ "type": "content_block_start", "index": at, "content_block": block }));
        let thought = pieces.iter().fold(started, |answer, piece| {
            let delta = json!({ "type": "thinking_delta", "thinking": piece });
            answer.json(&json!({ "type": "content_block_delta", "index": at, "delta": delta }))
        });
        thought.json(&json!({ "type": "content_block_stop", "index": at }))
    }

    fn source(
        &self,
        mut answer: ScriptedAnswer,
        at: usize,
        url: &str,
        title: Option<&str>,
    ) -> ScriptedAnswer {
        answer.places += 1;
        let block = json!({ "type": "text", "text": "", "citations": [] });
        let page = json!({ "type": "web_search_result_location", "url": url, "title": title, "cited_text": "…", "encrypted_index": "x" });
        let delta = json!({ "type": "citations_delta", "citation": page });
        answer
            .json(&json!({ "type": "content_block_start", "index": at, "content_block": block }))
            .json(&json!({ "type": "content_block_delta", "index": at, "delta": delta }))
            .json(&json!({ "type": "content_block_stop", "index": at }))
    }

    fn begin_call(
        &self,
        answer: ScriptedAnswer,
        at: usize,
        _number: usize,
        id: &str,
        tool: &str,
        arguments: &[&str],
    ) -> ScriptedAnswer {
        let block = json!({ "type": "tool_use", "id": id, "name": tool, "input": {} });
        let started =
            answer.json(&json!({ "type": "content_block_start", "index": at, "content_block": block }));
        arguments.iter().fold(started, |answer, piece| {
            let delta = json!({ "type": "input_json_delta", "partial_json": piece });
            answer.json(&json!({ "type": "content_block_delta", "index": at, "delta": delta }))
        })
    }

    fn end_call(
        &self,
        answer: ScriptedAnswer,
        at: usize,
        _id: &str,
        _tool: &str,
        _whole: &str,
    ) -> ScriptedAnswer {
        answer.json(&json!({ "type": "content_block_stop", "index": at }))
    }

    fn ends(&self, answer: ScriptedAnswer, why: Ending) -> ScriptedAnswer {
        let reason = why.word("end_turn", "tool_use", "max_tokens", "refusal");
        answer.json(&json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": 5 } }))
                    .json(&json!({ "type": "message_stop" }))
    }

    fn nonsense(&self) -> Vec<(&'static str, ScriptedAnswer)> {
        let on = || ScriptedAnswer::on(WIRE);
        let whole = r#"{"note":"1"}"#;
        let delta = json!({ "type": "input_json_delta", "partial_json": whole });
        let text = json!({ "type": "text", "text": "" });
        let in_text = on().event(block(0, "content_block", &text)).event(block(0, "delta", &delta));
        let reason = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 5 } });
        vec![
            ("arguments for a call that never began", on().event(block(9, "delta", &delta)).end()),
            ("arguments within words", in_text.end()),
            (
                "it ends for calls and makes none",
                on().event(reason.to_string()).event(r#"{"type":"message_stop"}"#),
            ),
        ]
    }

    fn read(&self, body: &Value) -> Result<Conversation, String> {
        read(body)
    }

    #[rustfmt::skip]
    fn valid_body(&self) -> Value {
        let user = || json!({"role": "user", "content": "go"});
        let last = || json!({"role": "assistant", "content": "done"});
            let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {"at": 1}});
            let reported = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "seen"});
            json!({"max_tokens": 9, "system": "be kind", "messages": [user(),
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "I look."}, call("a"), call("b")]},
                {"role": "user", "content": [reported("a"), reported("b")]},
                {"role": "assistant", "content": [call("c")]}, {"role": "user", "content": [reported("c")]}, last(), user(),
            ], "tools": [{"name": "look", "input_schema": look()}]})

    }

    #[rustfmt::skip]
    fn faults(&self) -> Vec<(&'static str, RequestFault, &'static str)> {
        let reported = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "seen"});
        let text = |text: &str| json!({"type": "text", "text": text});
        vec![
            ("/messages/2/content", Cut(1), UNANSWERED),
            ("/messages/2/content/1", Is(text("seen")), UNANSWERED),
            ("/messages/3/content", Is(json!([text("I wait.")])), LONELY),
            ("/messages/2/content", Is(json!([text("Here:"), reported("a"), reported("b")])), "no text where one has to be"),
            ("/messages/2/content", Is(json!([reported("a"), text("and"), reported("b")])), "no text where one has to be"),
            ("/messages/2/content", Double(1), "3 answers for 2 calls"),
            ("/messages/2/content", Swap(0, 1), MIXED_UP),
            ("/messages", Cut(1), LONELY),
            ("/messages", Cut(6), LAST),
            ("/messages/0/role", Is(json!("assistant")), BEGIN),
            ("/messages/0/role", Is(json!("system")), REFUSED),
            ("/messages/0/content", Is(json!(" \n")), "a text is blank"),
            ("/messages/0/content", Is(json!([])), "nothing is said"),
            ("/messages/5/content", Is(json!("")), "a text is blank"),
            ("/messages/5/content", Is(json!([{"type": "thinking", "thinking": "x", "signature": "x"}])), "Model says nothing"),
            ("/messages/1/content/2/text", Is(json!("\n")), "a text is blank"),
            ("/messages/1/content/0/signature", Is(json!("")), "signature says nothing"),
            ("/messages/1/content/0/thinking", Is(json!(null)), "thinking says nothing"),
            ("/messages/1/content/1/data", Is(json!(null)), "data says nothing"),
            ("/messages/1/content/2/type", Is(json!("poem")), "a block that there is not"),
            ("/messages/1/content", Swap(0, 4), "a thought stands behind a call"),
            ("/messages/1/content", Swap(1, 3), "a thought stands behind a call"),
            ("/messages/1/content/3/id", Is(json!("a|b")), "has a form that is refused"),
            ("/messages/1/content/3/id", Is(json!("a".repeat(65))), "has a form that is refused"),
            ("/messages/1/content/3/input", Is(json!("{}")), "no JSON object: \"{}\""),
            ("/messages/1/content/3/name", Is(json!("a".repeat(65))), "which is no name"),
            ("/messages/3/content/0/id", Is(json!("a")), "the id a is there twice"),
            ("/messages/2/content/0/content", Is(json!("")), "a text is blank"),
            ("/system", Is(json!("")), "a text is blank"),
            ("/tools", Is(json!(null)), "there are calls and no tools"),
            ("/tools", Double(0), "the tool look is offered twice"),
            ("/max_tokens", Is(json!(null)), "max_tokens is missing"),
        ]
    }
}

fn block(at: usize, what: &str, value: &Value) -> String {
    let kind = if what == "delta" { "content_block_delta" } else { "content_block_start" };
    let mut event = json!({ "type": kind, "index": at });
    event[what] = value.clone();
    event.to_string()
}

/// `/messages`.
fn read(body: &Value) -> Result<Conversation, String> {
    if body["max_tokens"].as_u64().is_none_or(|most| most == 0) {
        return Err("max_tokens is missing".to_owned());
    }
    let mut entries = Vec::new();
    if !body["system"].is_null() {
        entries.push(Entry::Words { by: Speaker::System, text: block_text(&body["system"])? });
    }
    for message in list(body, "messages")? {
        match message["role"].as_str() {
            Some("assistant") => entries.push(assistant(message)?),
            Some("user") => user(message, &mut entries)?,
            _ => return Err(format!("a role that there is not: {message}")),
        }
    }
    let tools = offered(&FACTS.tools, body)?;
    Ok(Conversation { entries, tools })
}

fn assistant(message: &Value) -> Result<Entry, String> {
    let mut words = String::new();
    let mut calls: Vec<Call> = Vec::new();
    if let Value::String(_) = message["content"] {
        return Ok(spoken(block_text(&message["content"])?, calls));
    }
    for block in list(message, "content")? {
        match block["type"].as_str() {
            Some("text") => words.push_str(&block_text(&Value::Array(vec![block.clone()]))?),
            Some("thinking" | "redacted_thinking") if !calls.is_empty() => {
                return Err(format!("a thought stands behind a call: {block}"));
            }
            Some("thinking") => drop((text(block, "thinking")?, text(block, "signature")?)),
            Some("redacted_thinking") => drop(text(block, "data")?),
            Some("tool_use") => {
                let (id, tool) = (text(block, "id")?, text(block, "name")?);
                if !is_plain(&id) {
                    return Err(format!("the id {id:?} has a form that is refused"));
                }
                calls.push(Call { id: Some(id), tool, arguments: block["input"].clone() });
            }
            _ => return Err(format!("a block that there is not: {block}")),
        }
    }
    Ok(spoken(words, calls))
}

/// Reads a user message. The answers to calls come first, before all text in the message.
fn user(message: &Value, entries: &mut Vec<Entry>) -> Result<(), String> {
    if let Value::String(_) = message["content"] {
        entries.push(Entry::Words { by: Speaker::User, text: block_text(&message["content"])? });
        return Ok(());
    }
    let blocks = list(message, "content")?;
    let results = blocks.iter().take_while(|block| block["type"] == "tool_result").count();
    let (results, words) = blocks.split_at(results);
    if !results.is_empty() {
        let result = |block: &Value| {
            let id = Some(text(block, "tool_use_id")?);
            Ok(Answer { id, tool: None, text: block_text(&block["content"])? })
        };
        entries.push(Entry::Answers(results.iter().map(result).collect::<Result<_, String>>()?));
    }
    if !words.is_empty() || results.is_empty() {
        entries.push(Entry::Words { by: Speaker::User, text: block_text(&Value::Array(words.to_vec()))? });
    }
    Ok(())
}

/// The text of a string or of text blocks, none of them blank.
fn block_text(content: &Value) -> Result<String, String> {
    let not_blank = |text: &str| match text.trim() {
        "" => Err(format!("a text is blank: {content}")),
        _ => Ok(text.to_owned()),
    };
    match content {
        Value::String(text) => not_blank(text),
        Value::Array(blocks) if !blocks.is_empty() => {
            let block = |block: &Value| match block["type"].as_str() {
                Some("text") => not_blank(block["text"].as_str().unwrap_or_default()),
                _ => Err(format!("no text where one has to be: {block}")),
            };
            blocks.iter().map(block).collect()
        }
        _ => Err(format!("nothing is said: {content}")),
    }
}

static SERVERS: [StrictServer; 1] = [StrictServer { wire: WIRE, base: "/v1", thinks: true, answers: sealed }];

#[rustfmt::skip]
fn sealed() -> [Script; 2] {
    let block = |index: usize, started: Value, deltas: &[Value]| {
        let delta = |delta: &Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        let mut events = vec![json!({"type": "content_block_start", "index": index, "content_block": started})];
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
    let step = |blocks: Value| json!({"role": "assistant", "content": blocks});
    [
        Script {
            events: [begin(), think("first"), block(1, redacted.clone(), &[]), speak(2, ANNOUNCED), call(3, "toolu_list", "list_files", &[""]),
                call(4, "toolu_delete", "delete_file", &["", "{\"path\": \"ol", "d.txt\"}"]), end("tool_use")].concat(),
            back: vec![step(json!([thought("first"), redacted, text(ANNOUNCED), tool_use("toolu_list", "list_files", json!({})),
                tool_use("toolu_delete", "delete_file", json!({"path": "old.txt"}))]))],
        },
        Script {
            events: [begin(), think("last"), speak(1, DONE), end("end_turn")].concat(),
            back: vec![step(json!([thought("last"), text(DONE)]))],
        },
    ]
}
