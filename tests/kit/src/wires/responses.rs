//! `/responses` of OpenAI.

use super::offered::{ACCEPTED, offered};
use super::strict::{ANNOUNCED, DONE, Script, StrictServer, THOUGHTS, halves, seal};
use super::{Ending, Facts, Foreign, Protocol, Refusal, ScriptedAnswer, Wire};
use crate::valid_history::faults::{BEGIN, Cut, Double, Is, LAST, MIXED_UP, RequestFault, Swap, UNANSWERED};
use crate::valid_history::{
    Answer, Call, Conversation, Entry, Speaker, answer, arguments, id, list, look, spoken, text,
};
use serde_json::{Value, json};
use std::collections::HashSet;

#[derive(Debug)]
struct Responses;

pub const WIRE: Wire = &Responses;

static FACTS: Facts = Facts {
    provider: "openai-responses",
    base_path: "/v1",
    path: "/responses",
    is_sse: true,
    names_events: true,
    writes_arguments: true,
    reports_overload: true,
    has_sources: true,
    separates_texts: true,
    marks_the_end: true,
    continues_after_the_reason: false,
    needs_its_first_events: false,
    answers_name_tools: false,
    calls_need_ids: true,
    id_field: "call_id",
    last_data: None,
    sign_of_life: ": still here\n\n",
    odd_sources: &[
        r#"{"type":"response.output_text.annotation.added","annotation":{"type":"file_citation","url":"https://example.com"}}"#,
        r#"{"type":"response.output_text.annotation.added"}"#,
    ],
    tools: ACCEPTED,
    early_reason: None,
    too_long: Refusal { status: 400, body: r#"{"error":{"code":"context_length_exceeded"}}"# },
    forbids_calls: Some(|body| body["tool_choice"] == "none"),
    strict_servers: &SERVERS,
    state_form: "list of items",
    foreign: Foreign {
        model: "gpt-5",
        options: "{}",
        key: ("authorization", "Bearer sk-nobody"),
        thinks: true,
        counts: true,
    },
};

impl Protocol for Responses {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn error(&self, overloaded: bool, words: &str) -> Value {
        match overloaded {
            true => json!({ "type": "error", "code": "server_is_overloaded", "message": words }),
            false => json!({ "type": "error", "code": "invalid_prompt", "message": words }),
        }
    }

    fn begin(&self) -> Option<Value> {
        Some(
            json!({ "type": "response.created", "response": { "id": "resp_1", "status": "in_progress", "output": [] } }),
        )
    }

    fn words(&self, answer: ScriptedAnswer, at: usize, pieces: &[&str]) -> ScriptedAnswer {
        let id = format!("msg_{at}");

        let item = json!({ "type": "message", "id": id, "role": "assistant", "content": [] });
        let part = json!({ "type": "output_text", "text": "", "annotations": [] });
        let started = answer
                    .json(&json!({ "type": "response.output_item.added", "output_index": at, "item": item }))
                    .json(&json!({ "type": "response.content_part.added", "item_id": id, "output_index": at, "content_index": 0, "part": part }));
        let written = pieces.iter().fold(started, |answer, piece| {
                    answer.json(&json!({ "type": "response.output_text.delta", "item_id": id, "output_index": at, "content_index": 0, "delta": piece }))
                });
        let text = pieces.concat();
        let part = json!({ "type": "output_text", "text": text, "annotations": [] });
        let item = json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "content": [part] });
        written
                    .json(&json!({ "type": "response.output_text.done", "item_id": id, "output_index": at, "content_index": 0, "text": text }))
                    .item_done(at, item.to_string())
    }

    fn thinks(&self, mut answer: ScriptedAnswer, at: usize, pieces: &[&str]) -> ScriptedAnswer {
        answer.places += 1;
        pieces.iter().fold(answer, |answer, piece| {
                    answer.json(&json!({ "type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": at, "summary_index": 0, "delta": piece }))
                })
    }

    fn source(&self, answer: ScriptedAnswer, _at: usize, url: &str, title: Option<&str>) -> ScriptedAnswer {
        let page =
            json!({ "type": "url_citation", "url": url, "title": title, "start_index": 0, "end_index": 1 });
        answer.json(&json!({ "type": "response.output_text.annotation.added", "item_id": "msg_0", "output_index": 0, "content_index": 0, "annotation_index": 0, "annotation": page }))
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
        let item_id = format!("fc_{at}");
        let item =
            json!({ "type": "function_call", "id": item_id, "call_id": id, "name": tool, "arguments": "" });
        let started =
            answer.json(&json!({ "type": "response.output_item.added", "output_index": at, "item": item }));
        arguments.iter().fold(started, |answer, piece| {
                    answer.json(&json!({ "type": "response.function_call_arguments.delta", "item_id": item_id, "output_index": at, "delta": piece }))
                })
    }

    fn end_call(
        &self,
        answer: ScriptedAnswer,
        at: usize,
        id: &str,
        tool: &str,
        whole: &str,
    ) -> ScriptedAnswer {
        let item = json!({ "type": "function_call", "id": format!("fc_{at}"), "call_id": id, "name": tool, "arguments": whole, "status": "completed" });
        answer
                    .json(&json!({ "type": "response.function_call_arguments.done", "item_id": format!("fc_{at}"), "output_index": at, "arguments": whole }))
                    .item_done(at, item.to_string())
    }

    fn ends(&self, answer: ScriptedAnswer, why: Ending) -> ScriptedAnswer {
        let status = why.word("completed", "completed", "incomplete", "incomplete");
        let details = match why {
            Ending::Length => json!({ "reason": "max_output_tokens" }),
            Ending::Filtered => json!({ "reason": "content_filter" }),
            Ending::Stop | Ending::Calls => Value::Null,
        };
        let items = answer.items.join(",");
        answer.event(format!(
                    r#"{{"type":"response.{status}","response":{{"id":"resp_1","status":"{status}","incomplete_details":{details},"output":[{items}],"usage":{{"input_tokens":10,"output_tokens":5,"total_tokens":15}}}}}}"#
                ))
    }

    fn nonsense(&self) -> Vec<(&'static str, ScriptedAnswer)> {
        let on = || ScriptedAnswer::on(WIRE);
        let whole = r#"{"note":"1"}"#;
        let delta = json!({ "type": "response.function_call_arguments.delta", "item_id": "fc_9", "output_index": 9, "delta": whole });
        vec![("arguments for a call that never began", on().event(delta.to_string()).end())]
    }

    fn read(&self, body: &Value) -> Result<Conversation, String> {
        read(body)
    }

    #[rustfmt::skip]
    fn valid_body(&self) -> Value {
        let user = || json!({"role": "user", "content": "go"});
        let last = || json!({"role": "assistant", "content": "done"});
            let call = |id: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "look", "arguments": "{\"at\":1}"});
            let reported = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "seen"});
            json!({"store": false, "instructions": "be kind", "input": [user(),
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                call("a"), call("b"), reported("a"), reported("b"), call("c"), reported("c"), last(), user(),
            ], "tools": [{"type": "function", "name": "look", "parameters": look(), "strict": false}]})

    }

    #[rustfmt::skip]
    fn faults(&self) -> Vec<(&'static str, RequestFault, &'static str)> {
        vec![
            ("/input", Cut(6), UNANSWERED),
            ("/input", Swap(6, 10), UNANSWERED),
            ("/input", Double(6), "3 answers for 2 calls"),
            ("/input", Swap(5, 6), MIXED_UP),
            ("/input", Cut(7), "3 answers for 2 calls"),
            ("/input", Cut(10), LAST),
            ("/input", Is(json!([])), LAST),
            ("/input", Is(json!(null)), "input is no list"),
            ("/input", Swap(0, 1), "stands without what it led to"),
            ("/input", Swap(1, 4), "stands without what it led to"),
            ("/input", Swap(1, 10), "stands without what it led to"),
            ("/instructions", Is(json!("")), "instructions says nothing"),
            ("/input/0/content", Is(json!("")), "content says nothing"),
            ("/input/0/role", Is(json!("assistant")), BEGIN),
            ("/input/0/role", Is(json!("bot")), "an item that there is not"),
            ("/input/1/encrypted_content", Is(json!(null)), "encrypted_content says nothing"),
            ("/input/1/id", Is(json!(null)), "id says nothing"),
            ("/input/1/summary", Is(json!(null)), "summary is no list"),
            ("/input/2/content/0/text", Is(json!("")), "text says nothing"),
            ("/input/3/type", Is(json!("call")), "an item that there is not"),
            ("/input/3/name", Is(json!("")), "name says nothing"),
            ("/input/3/arguments", Is(json!("")), "no JSON: "),
            ("/input/3/arguments", Is(json!("1")), "no JSON object: 1"),
            ("/input/3/call_id", Is(json!(null)), "call_id says nothing"),
            ("/input/3/call_id", Is(json!("a".repeat(65))), "is too long"),
            ("/input/3/name", Is(json!("look.up")), "\"look.up\", which is no name"),
            ("/input/3/id", Is(json!("fc_b")), "the item fc_b is there twice"),
            ("/input/7/call_id", Is(json!("a")), "the id a is there twice"),
            ("/input/5/output", Is(json!("")), "output says nothing"),
            ("/tools", Double(0), "the tool look is offered twice"),
        ]
    }
}

impl ScriptedAnswer {
    fn item_done(mut self, at: usize, item: String) -> Self {
        let done = format!(r#"{{"type":"response.output_item.done","output_index":{at},"item":{item}}}"#);
        self.items.push(item);
        self.event(done)
    }
}

/// `/responses`: the items of one step are consecutive, without another author's items in between.
fn read(body: &Value) -> Result<Conversation, String> {
    let mut entries = Vec::new();
    if !body["instructions"].is_null() {
        entries.push(Entry::Words { by: Speaker::System, text: text(body, "instructions")? });
    }
    let mut ids = HashSet::new();
    let mut step = Step::default();
    for item in list(body, "input")? {
        if let Some(id) = id(item, "id")?.filter(|id| !ids.insert(id.clone())) {
            return Err(format!("the item {id} is there twice"));
        }
        match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
            ("message", Some("assistant")) => step.add_text(&words(item)?),
            ("reasoning", None) => step.thinks(item, body)?,
            ("function_call", None) => {
                let (id, arguments) = (text(item, "call_id")?, arguments(item)?);
                if id.len() > 64 {
                    return Err(format!("the id {id} is too long"));
                }
                step.calls(Call { id: Some(id), tool: text(item, "name")?, arguments });
            }
            ("message", Some("user")) => {
                step.end(&mut entries)?;
                entries.push(Entry::Words { by: Speaker::User, text: words(item)? });
            }
            ("function_call_output", None) => {
                step.end(&mut entries)?;
                let id = Some(text(item, "call_id")?);
                answer(&mut entries, Answer { id, tool: None, text: text(item, "output")? });
            }
            _ => return Err(format!("an item that there is not: {item}")),
        }
    }
    step.end(&mut entries)?;
    Ok(Conversation { entries, tools: offered(&FACTS.tools, body)? })
}

/// Consecutive items of the model.
#[derive(Default)]
struct Step {
    text: String,
    calls: Vec<Call>,
    started: bool,
    /// Whether reasoning is not followed by a text or a call yet.
    thinking: bool,
}

impl Step {
    fn add_text(&mut self, text: &str) {
        self.text.push_str(text);
        (self.started, self.thinking) = (true, false);
    }

    fn calls(&mut self, call: Call) {
        self.calls.push(call);
        (self.started, self.thinking) = (true, false);
    }

    fn thinks(&mut self, item: &Value, body: &Value) -> Result<(), String> {
        text(item, "id")?;
        list(item, "summary")?;
        if body["store"] == false {
            // The server has not stored the item, so the id alone is not enough.
            text(item, "encrypted_content")?;
        }
        (self.started, self.thinking) = (true, true);
        Ok(())
    }

    fn end(&mut self, entries: &mut Vec<Entry>) -> Result<(), String> {
        let Self { text, calls, started, thinking } = std::mem::take(self);
        if thinking {
            return Err("a reasoning item stands without what it led to".to_owned());
        }
        if started {
            entries.push(spoken(text, calls));
        }
        Ok(())
    }
}

/// The text of a message, as one text or in parts.
fn words(item: &Value) -> Result<String, String> {
    match &item["content"] {
        Value::Array(parts) => parts.iter().map(|part| text(part, "text")).collect(),
        _ => text(item, "content"),
    }
}

static SERVERS: [StrictServer; 1] = [StrictServer { wire: WIRE, base: "/v1", thinks: true, answers: sealed }];

#[rustfmt::skip]
fn sealed() -> [Script; 2] {
    // An item differs between its begin and its end event.
    let done = |place: usize, started: Value, deltas: Vec<Value>, item: &Value| {
        let mut events = vec![json!({"type": "response.output_item.added", "output_index": place, "item": started})];
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
        let started = json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "not yet"});
        let reported = halves(THOUGHTS).map(|half| delta("reasoning_summary_text", 0, half));
        done(0, started, reported.to_vec(), &thought(id))
    };
    let speak = |id: &str, words: &str| {
        let item = |status: &str, content: Value| json!({"type": "message", "id": id, "role": "assistant", "status": status, "content": content});
        let step = item("completed", json!([{"type": "output_text", "text": words, "annotations": []}]));
        done(1, item("in_progress", json!([])), halves(words).map(|half| delta("output_text", 1, half)).to_vec(), &step)
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
