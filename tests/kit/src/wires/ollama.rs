//! `/api/chat` of Ollama.

use super::chat::messages;
use super::offered::{ACCEPTED, ToolRules};
use super::strict::{ANNOUNCED, DONE, Script, StrictServer, THOUGHTS, halves};
use super::{Ending, Facts, Foreign, Protocol, Refusal, ScriptedAnswer, Wire};
use crate::valid_history::faults::{
    BEGIN, Cut, Double, Is, LAST, LONELY, MIXED_UP, RequestFault, Swap, UNANSWERED,
};
use crate::valid_history::{Answer, Call, Conversation, id, look, text};
use serde_json::{Value, json};

#[derive(Debug)]
struct Ollama;

pub const WIRE: Wire = &Ollama;

static FACTS: Facts = Facts {
    provider: "ollama",
    base_path: "",
    path: "/api/chat",
    is_sse: false,
    names_events: false,
    writes_arguments: false,
    reports_overload: false,
    has_sources: false,
    separates_texts: false,
    marks_the_end: true,
    continues_after_the_reason: false,
    needs_its_first_events: false,
    answers_name_tools: true,
    calls_need_ids: false,
    id_field: "id",
    last_data: None,
    sign_of_life: "\n",
    odd_sources: &[],
    tools: ToolRules {
        name: "/function/name",
        schema: "/function/parameters",
        references: false,
        ..ACCEPTED
    },
    early_reason: None,
    too_long: Refusal {
        status: 400,
        body: r#"{"error":{"message":"the request exceeds the available context size, try increasing it"}}"#,
    },
    // Without tools a model of Ollama answers with text.
    forbids_calls: None,
    strict_servers: &SERVERS,
    state_form: "text",
    // The foreign server streams reasoning under a name that Ollama does not use, and reports no usage.
    foreign: Foreign {
        model: "qwen3",
        options: "{}",
        key: ("authorization", "Bearer sk-nobody"),
        thinks: false,
        counts: false,
    },
};

impl Protocol for Ollama {
    fn facts(&self) -> &'static Facts {
        &FACTS
    }

    fn error(&self, _overloaded: bool, words: &str) -> Value {
        json!({ "error": words })
    }

    fn begin(&self) -> Option<Value> {
        None
    }

    fn words(&self, answer: ScriptedAnswer, _at: usize, pieces: &[&str]) -> ScriptedAnswer {
        pieces.iter().fold(answer, |answer, piece| {
            answer.json(
                &json!({ "model": "m", "message": { "role": "assistant", "content": piece }, "done": false }),
            )
        })
    }

    fn thinks(&self, answer: ScriptedAnswer, _at: usize, pieces: &[&str]) -> ScriptedAnswer {
        pieces.iter().fold(answer, |answer, piece| {
            let message = json!({ "role": "assistant", "content": "", "thinking": piece });
            answer.json(&json!({ "model": "m", "message": message, "done": false }))
        })
    }

    fn source(&self, answer: ScriptedAnswer, _at: usize, _url: &str, _title: Option<&str>) -> ScriptedAnswer {
        answer
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

        let function = format!(r#"{{"name":{quoted_tool},"arguments":{}}}"#, arguments.concat());
        answer.event(format!(
                    r#"{{"model":"m","message":{{"role":"assistant","content":"","tool_calls":[{{"id":{quoted_id},"function":{function}}}]}},"done":false}}"#
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
        let reason = why.word("stop", "stop", "length", "stop");
        let message = json!({ "role": "assistant", "content": "" });
        answer.json(&json!({ "model": "m", "message": message, "done": true, "done_reason": reason, "prompt_eval_count": 10, "eval_count": 5 }))
    }

    fn nonsense(&self) -> Vec<(&'static str, ScriptedAnswer)> {
        let on = || ScriptedAnswer::on(WIRE);
        let nameless = r#"{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"arguments":{"note":"1"}}}]},"done":false}"#;
        vec![("a call without a name", on().event(nameless).end())]
    }

    fn read(&self, body: &Value) -> Result<Conversation, String> {
        read(body)
    }

    #[rustfmt::skip]
    fn valid_body(&self) -> Value {
        let user = || json!({"role": "user", "content": "go"});
        let system = || json!({"role": "system", "content": "be kind"});
        let last = || json!({"role": "assistant", "content": "done"});
            let call = |id: &str| json!({"id": id, "function": {"name": "look", "arguments": {"at": 1}}});
            let reported = |id: &str| json!({"role": "tool", "tool_call_id": id, "tool_name": "look", "content": "seen"});
            json!({"messages": [system(), user(),
                {"role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b")]}, reported("a"), reported("b"),
                {"role": "assistant", "content": "", "tool_calls": [call("c")]}, reported("c"), last(), user(),
            ], "tools": [{"type": "function", "function": {"name": "look", "parameters": look()}}]})

    }

    #[rustfmt::skip]
    fn faults(&self) -> Vec<(&'static str, RequestFault, &'static str)> {
        vec![
            ("/messages", Cut(4), UNANSWERED),
            ("/messages", Double(4), "3 answers for 2 calls"),
            ("/messages", Swap(3, 4), MIXED_UP),
            ("/messages", Cut(2), LONELY),
            ("/messages", Cut(8), LAST),
            ("/messages/1/role", Is(json!("assistant")), BEGIN),
            ("/messages/7/content", Is(json!("")), "Model says nothing"),
            ("/messages/3/content", Is(json!("")), "content says nothing"),
            ("/messages/3/tool_name", Is(json!(null)), "tool_name says nothing"),
            ("/messages/3/tool_name", Is(json!("other")), "Some(\"other\") answers where look has to"),
            ("/messages/2/tool_calls/0/function/arguments", Is(json!("{}")), "no JSON object: \"{}\""),
            ("/messages/2/tool_calls/0/function/name", Is(json!(null)), "name says nothing"),
            ("/messages/2/tool_calls/0/function/name", Is(json!("look/up")), "which is no name"),
            ("/messages/5/tool_calls/0/id", Is(json!("a")), "the id a is there twice"),
        ]
    }
}

/// `/api/chat`: arguments are objects, answers name their tool.
fn read(body: &Value) -> Result<Conversation, String> {
    let call = |call: &Value| {
        let function = &call["function"];
        let arguments = function["arguments"].clone();
        Ok(Call { id: id(call, "id")?, tool: text(function, "name")?, arguments })
    };
    let answer = |message: &Value| {
        let (id, tool) = (id(message, "tool_call_id")?, Some(text(message, "tool_name")?));
        Ok(Answer { id, tool, text: text(message, "content")? })
    };
    messages(&FACTS.tools, body, call, answer)
}

static SERVERS: [StrictServer; 1] = [StrictServer { wire: WIRE, base: "", thinks: true, answers: sealed }];

#[rustfmt::skip]
fn sealed() -> [Script; 2] {
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
