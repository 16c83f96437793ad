//! `:streamGenerateContent` of Google.

use super::offered::{ACCEPTED, ToolRules, offered};
use super::strict::{ANNOUNCED, DONE, Script, StrictServer, THOUGHTS, halves, seal};
use super::{Ending, Facts, Foreign, Protocol, Refusal, ScriptedAnswer, Wire};
use crate::valid_history::faults::{
    BEGIN, Cut, Double, Is, LAST, LONELY, MIXED_UP, REFUSED, RequestFault, Swap, UNANSWERED,
};
use crate::valid_history::{
    Answer, Call, Conversation, Entry, Speaker, id, is_plain, list, look, spoken, text,
};
use serde_json::{Value, json};

#[derive(Debug)]
struct Gemini;

pub const WIRE: Wire = &Gemini;

static FACTS: Facts = Facts {
    provider: "gemini",
    base_path: "/v1beta",
    path: "/models/{model}:streamGenerateContent?alt=sse",
    is_sse: true,
    names_events: false,
    writes_arguments: false,
    reports_overload: true,
    has_sources: true,
    separates_texts: false,
    marks_the_end: false,
    continues_after_the_reason: false,
    needs_its_first_events: false,
    answers_name_tools: true,
    calls_need_ids: false,
    id_field: "id",
    last_data: None,
    sign_of_life: ": still here\n\n",
    odd_sources: &[
        r#"{"candidates":[{"groundingMetadata":{"groundingChunks":{"web":{"uri":"https://example.com"}}}}]}"#,
        r#"{"candidates":[{"groundingMetadata":[]}]}"#,
    ],
    tools: ToolRules {
        list: "/tools/0/functionDeclarations",
        schema: "/parametersJsonSchema",
        keywords: Some(&[
            "type",
            "format",
            "title",
            "description",
            "enum",
            "items",
            "prefixItems",
            "minimum",
            "maximum",
            "anyOf",
            "oneOf",
            "properties",
            "additionalProperties",
            "required",
            "default",
        ]),
        references: false,
        depth_max: 5,
        tool: |name| !name.starts_with(|c: char| c.is_ascii_digit() || c == '-'),
        property: |name| {
            is_plain(name) && !name.contains('-') && !name.starts_with(|c: char| c.is_ascii_digit())
        },
        listed: |value| value.is_number() || value.as_str().is_some_and(|text| !text.is_empty()),
        named_required: true,
        ..ACCEPTED
    },
    early_reason: Some(r#"{"candidates":[{"content":{"role":"model","parts":[]},"finishReason":"STOP"}]}"#),
    too_long: Refusal {
        status: 400,
        body: r#"{"error":{"message":"The input token count (9) exceeds the maximum number of tokens allowed (8)."}}"#,
    },
    forbids_calls: Some(|body| body["toolConfig"] == json!({ "functionCallingConfig": { "mode": "NONE" } })),
    strict_servers: &SERVERS,
    state_form: "list of items",
    foreign: Foreign {
        model: "gemini-2.5-pro",
        options: "{}",
        key: ("x-goog-api-key", "sk-nobody"),
        thinks: true,
        counts: true,
    },
};

impl Protocol for Gemini {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn error(&self, overloaded: bool, words: &str) -> Value {
        match overloaded {
            true => json!({ "error": { "code": 503, "message": words, "status": "UNAVAILABLE" } }),
            false => json!({ "error": { "code": 400, "message": words, "status": "INVALID_ARGUMENT" } }),
        }
    }

    fn begin(&self) -> Option<Value> {
        None
    }

    fn words(&self, answer: ScriptedAnswer, _at: usize, pieces: &[&str]) -> ScriptedAnswer {
        pieces.iter().fold(answer, |answer, piece| answer.parts(&json!({ "text": piece }).to_string()))
    }

    fn thinks(&self, answer: ScriptedAnswer, _at: usize, pieces: &[&str]) -> ScriptedAnswer {
        pieces.iter().fold(answer, |answer, piece| {
            answer.parts(&json!({ "text": piece, "thought": true }).to_string())
        })
    }

    fn source(&self, answer: ScriptedAnswer, _at: usize, url: &str, title: Option<&str>) -> ScriptedAnswer {
        let chunks =
            json!([{ "web": { "uri": url, "title": title } }, { "retrievedContext": { "uri": "gs://x" } }]);
        let grounding = json!({ "groundingChunks": chunks, "webSearchQueries": ["x"] });
        answer.json(&json!({ "candidates": [{ "groundingMetadata": grounding, "index": 0 }] }))
    }

    fn begin_call(
        &self,
        answer: ScriptedAnswer,
        _at: usize,
        _number: usize,
        id: &str,
        tool: &str,
        arguments: &[&str],
    ) -> ScriptedAnswer {
        let (quoted_id, quoted_tool) = (json!(id), json!(tool));

        let arguments = arguments.concat();
        answer.parts(&format!(
            r#"{{"functionCall":{{"id":{quoted_id},"name":{quoted_tool},"args":{arguments}}}}}"#
        ))
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
        let reason = why.word("STOP", "STOP", "MAX_TOKENS", "SAFETY");
        let candidate = json!({ "content": { "role": "model", "parts": [{ "text": "" }] }, "finishReason": reason, "index": 0 });
        let usage = json!({ "promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15 });
        answer.json(&json!({ "candidates": [candidate], "usageMetadata": usage }))
    }

    fn nonsense(&self) -> Vec<(&'static str, ScriptedAnswer)> {
        let on = || ScriptedAnswer::on(WIRE);
        let nameless = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"args":{"note":"1"}}}]}}]}"#;
        vec![("a call without a name", on().event(nameless).end())]
    }

    fn read(&self, body: &Value) -> Result<Conversation, String> {
        read(body)
    }

    #[rustfmt::skip]
    fn valid_body(&self) -> Value {
            let words = |role: &str, text: &str| json!({"role": role, "parts": [{"text": text}]});
            let call = |id: &str| json!({"functionCall": {"id": id, "name": "look", "args": {"at": 1}}});
            let reported = |id: &str| json!({"functionResponse": {"id": id, "name": "look", "response": {"result": "seen"}}});
            json!({"systemInstruction": {"parts": [{"text": "be kind"}]}, "contents": [words("user", "go"),
                {"role": "model", "parts": [{"text": "hm", "thought": true}, {"text": "I look."}, {"text": "", "thoughtSignature": "x"}, call("a"), call("b")]},
                {"role": "user", "parts": [reported("a"), reported("b")]},
                {"role": "model", "parts": [call("c")]}, {"role": "user", "parts": [reported("c")]}, words("model", "done"), words("user", "go"),
            ], "tools": [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": look()}]}]})

    }

    #[rustfmt::skip]
    fn faults(&self) -> Vec<(&'static str, RequestFault, &'static str)> {
        vec![
            ("/contents/2/parts", Cut(1), UNANSWERED),
            ("/contents/2/parts", Double(1), "3 answers for 2 calls"),
            ("/contents/2/parts", Swap(0, 1), MIXED_UP),
            ("/contents/2/parts/1", Is(json!({"text": "seen"})), "response is no object"),
            ("/contents/2/parts/0/functionResponse/name", Is(json!("other")), "Some(\"other\") answers where look has to"),
            ("/contents/2/parts/0/functionResponse/name", Is(json!(null)), "name says nothing"),
            ("/contents/2/parts/0/functionResponse/response", Is(json!("seen")), "response is no object"),
            ("/contents/2/parts/0/functionResponse/response", Is(json!({})), "the answer of call a says nothing"),
            ("/contents/2", Is(json!({"role": "model", "parts": [{"text": "I wait."}]})), "behind other words of the model"),
            ("/contents", Cut(1), LONELY),
            ("/contents", Cut(6), LAST),
            ("/contents", Cut(0), BEGIN),
            ("/contents/0/role", Is(json!("system")), REFUSED),
            ("/contents/0/parts", Is(json!(null)), "parts is no list"),
            ("/contents/0/parts", Is(json!([])), "User says nothing"),
            ("/contents/5/parts/0/text", Is(json!("")), "text says nothing"),
            ("/contents/5/parts", Is(json!([])), "Model says nothing"),
            ("/contents/1/parts/2/thoughtSignature", Is(json!(null)), "text says nothing"),
            ("/contents/1/parts/3", Is(json!({"inlineData": {}})), "a part that there is not"),
            ("/contents/1/parts/3/functionCall/args", Is(json!(null)), "no JSON object: null"),
            ("/contents/1/parts/3/functionCall/name", Is(json!("löök")), "which is no name"),
            ("/contents/1/parts/3/functionCall/id", Is(json!(1)), "id is no text: 1"),
            ("/contents/1/parts/3/functionCall/id", Is(json!("")), "a call of look has an empty id"),
            ("/contents/3/parts/0/functionCall/id", Is(json!("a")), "the id a is there twice"),
            ("/systemInstruction/parts/0/text", Is(json!("")), "text says nothing"),
            ("/tools/0/functionDeclarations", Double(0), "the tool look is offered twice"),
        ]
    }
}

impl ScriptedAnswer {
    /// Appends an event with these parts, written as they are.
    pub fn parts(self, parts: &str) -> Self {
        self.event(format!(
            r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"index":0}}]}}"#
        ))
    }
}

/// `:streamGenerateContent`.
fn read(body: &Value) -> Result<Conversation, String> {
    let mut entries = Vec::new();
    if !body["systemInstruction"].is_null() {
        let parts = list(&body["systemInstruction"], "parts")?;
        let text = parts.iter().map(|part| text(part, "text")).collect::<Result<_, _>>()?;
        entries.push(Entry::Words { by: Speaker::System, text });
    }
    for content in list(body, "contents")? {
        let parts = list(content, "parts")?;
        let entry = match content["role"].as_str() {
            Some("model") => model(parts)?,
            Some("user") if parts.iter().any(|part| !part["functionResponse"].is_null()) => {
                Entry::Answers(parts.iter().map(function_response).collect::<Result<_, _>>()?)
            }
            Some("user") => {
                let text = parts.iter().map(|part| text(part, "text")).collect::<Result<_, _>>()?;
                Entry::Words { by: Speaker::User, text }
            }
            _ => return Err(format!("a role that there is not: {content}")),
        };
        if let (Entry::Calls { .. }, Some(Entry::Words { by: Speaker::Model, .. })) = (&entry, entries.last())
        {
            return Err("a call stands behind other words of the model".to_owned());
        }
        entries.push(entry);
    }
    if !body["tools"][1].is_null() {
        return Err(format!("the tools are in several groups: {}", body["tools"]));
    }
    Ok(Conversation { entries, tools: offered(&FACTS.tools, body)? })
}

fn model(parts: &[Value]) -> Result<Entry, String> {
    let mut words = String::new();
    let mut calls = Vec::new();
    for part in parts {
        match (&part["text"], &part["functionCall"]) {
            (Value::String(_), Value::Null) if part["thought"] == true => {}
            // A part with empty text may carry sealed reasoning.
            (Value::String(empty), Value::Null)
                if empty.is_empty() && part["thoughtSignature"].is_string() => {}
            (Value::String(_), Value::Null) => words.push_str(&text(part, "text")?),
            (Value::Null, call @ Value::Object(_)) => {
                let arguments = call["args"].clone();
                calls.push(Call { id: id(call, "id")?, tool: text(call, "name")?, arguments });
            }
            _ => return Err(format!("a part that there is not: {part}")),
        }
    }
    Ok(spoken(words, calls))
}

fn function_response(part: &Value) -> Result<Answer, String> {
    let answer = &part["functionResponse"];
    let response = answer["response"].as_object().ok_or(format!("response is no object: {part}"))?;
    // A result alone under this name is unwrapped; any other response is kept as it is.
    let reported = match response.get("result").and_then(Value::as_str) {
        Some(result) if response.len() == 1 => result.to_owned(),
        _ if response.is_empty() => String::new(),
        _ => Value::Object(response.clone()).to_string(),
    };
    Ok(Answer { id: id(answer, "id")?, tool: Some(text(answer, "name")?), text: reported })
}

static SERVERS: [StrictServer; 1] =
    [StrictServer { wire: WIRE, base: "/v1beta", thinks: true, answers: sealed }];

#[rustfmt::skip]
fn sealed() -> [Script; 2] {
    let chunk = |parts: Value| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}}]});
    let last = |parts: Value| json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 5, "thoughtsTokenCount": 3}});
    let step = |parts: Value| json!({"role": "model", "parts": parts});
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
    let [started, rest] = halves(DONE).map(|half| chunk(json!([{"text": half}])));
    [
        Script {
            events: vec![thought(one), thought(other), chunk(json!([announced])), last(json!([list, delete]))],
            back: vec![step(json!([announced, list, deleted]))],
        },
        Script {
            events: vec![thought(one), started, rest, last(json!([empty]))],
            back: vec![step(json!([unsigned, empty]))],
        },
    ]
}
