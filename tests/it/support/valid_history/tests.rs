use super::*;
use serde_json::json;

/// The same conversation on each wire: a question, two calls in one message, their answers, a call in its own
/// message, the last text, the next question.
const PATHS: [&str; 5] = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1beta/models/some-model:streamGenerateContent?alt=sse",
    "/api/chat",
];

#[rustfmt::skip]
fn valid(path: &str) -> Value {
    let user = || json!({"role": "user", "content": "go"});
    let system = || json!({"role": "system", "content": "be kind"});
    let last = || json!({"role": "assistant", "content": "done"});
    match PATHS.iter().position(|known| *known == path).unwrap() {
        0 => {
            let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}});
            let told = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "seen"});
            json!({"messages": [system(), user(),
                {"role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b")]}, told("a"), told("b"),
                {"role": "assistant", "content": null, "tool_calls": [call("c")]}, told("c"), last(), user(),
            ], "tools": [{"type": "function", "function": {"name": "look"}}]})
        }
        1 => {
            let call = |id: &str| json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "look", "arguments": "{\"at\":1}"});
            let told = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "seen"});
            json!({"store": false, "instructions": "be kind", "input": [user(),
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
                {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                call("a"), call("b"), told("a"), told("b"), call("c"), told("c"), last(), user(),
            ], "tools": [{"type": "function", "name": "look"}]})
        }
        2 => {
            let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {"at": 1}});
            let told = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "seen"});
            json!({"max_tokens": 9, "system": "be kind", "messages": [user(),
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "I look."}, call("a"), call("b")]},
                {"role": "user", "content": [told("a"), told("b")]},
                {"role": "assistant", "content": [call("c")]}, {"role": "user", "content": [told("c")]}, last(), user(),
            ], "tools": [{"name": "look"}]})
        }
        3 => {
            let words = |role: &str, text: &str| json!({"role": role, "parts": [{"text": text}]});
            let call = |id: &str| json!({"functionCall": {"id": id, "name": "look", "args": {"at": 1}}});
            let told = |id: &str| json!({"functionResponse": {"id": id, "name": "look", "response": {"result": "seen"}}});
            json!({"systemInstruction": {"parts": [{"text": "be kind"}]}, "contents": [words("user", "go"),
                {"role": "model", "parts": [{"text": "hm", "thought": true}, {"text": "I look."}, {"text": "", "thoughtSignature": "x"}, call("a"), call("b")]},
                {"role": "user", "parts": [told("a"), told("b")]},
                {"role": "model", "parts": [call("c")]}, {"role": "user", "parts": [told("c")]}, words("model", "done"), words("user", "go"),
            ], "tools": [{"functionDeclarations": [{"name": "look"}]}]})
        }
        _ => {
            let call = |id: &str| json!({"id": id, "function": {"name": "look", "arguments": {"at": 1}}});
            let told = |id: &str| json!({"role": "tool", "tool_call_id": id, "tool_name": "look", "content": "seen"});
            json!({"messages": [system(), user(),
                {"role": "assistant", "content": "I look.", "tool_calls": [call("a"), call("b")]}, told("a"), told("b"),
                {"role": "assistant", "content": "", "tool_calls": [call("c")]}, told("c"), last(), user(),
            ], "tools": [{"type": "function", "function": {"name": "look"}}]})
        }
    }
}

#[test]
fn the_same_conversation_is_read_from_each_wire() {
    let words = |by, text: &str| Entry::Words { by, text: text.to_owned() };
    let calls = |text: &str, ids: &[&str]| {
        let call = |id: &&str| Call {
            id: Some((*id).to_owned()),
            tool: "look".to_owned(),
            arguments: json!({ "at": 1 }),
        };
        Entry::Calls { text: text.to_owned(), calls: ids.iter().map(call).collect() }
    };
    for path in PATHS {
        // On the wires that repeat the tool in an answer, the answer names it.
        let tool = PATHS[3..].contains(&path).then(|| "look".to_owned());
        let answers = |ids: &[&str]| {
            let answer = |id: &&str| Answer {
                id: Some((*id).to_owned()),
                tool: tool.clone(),
                text: "seen".to_owned(),
            };
            Entry::Answers(ids.iter().map(answer).collect())
        };
        let said = vec![
            words(By::System, "be kind"),
            words(By::User, "go"),
            calls("I look.", &["a", "b"]),
            answers(&["a", "b"]),
            calls("", &["c"]),
            answers(&["c"]),
            words(By::Model, "done"),
            words(By::User, "go"),
        ];
        let expected = Conversation { said, tools: vec!["look".to_owned()] };
        assert_eq!(conversation(path, &valid(path)), Ok(expected), "{path}");
    }
    assert_eq!(valid_request("/v1/models", &json!({})), Err("/v1/models is the path of no wire".to_owned()));
}

/// One fault in an otherwise valid request, at a JSON pointer.
enum Wrong {
    /// The value is replaced; null counts as absent.
    Is(Value),
    /// This entry is missing from the list.
    Cut(usize),
    /// This entry is in the list twice.
    Double(usize),
    /// These two entries of the list are swapped.
    Swap(usize, usize),
}
use Wrong::{Cut, Double, Is, Swap};

fn each_is_found(path: &str, cases: Vec<(&str, Wrong, &str)>) {
    for (pointer, wrong, expected) in cases {
        let mut body = valid(path);
        let found = body.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} is not in {path}"));
        match (wrong, found) {
            (Is(value), found) => *found = value,
            (Cut(at), Value::Array(list)) => drop(list.remove(at)),
            (Double(at), Value::Array(list)) => list.insert(at, list[at].clone()),
            (Swap(one, other), Value::Array(list)) => list.swap(one, other),
            _ => panic!("{pointer} is no list in {path}"),
        }
        let found = valid_request(path, &body).expect_err(expected);
        assert!(found.contains(expected), "{found:?} and not {expected:?} for {body:#}");
    }
}

const REFUSED: &str = "a role that there is not";
const LATE: &str = "instructions come late";
const BEGIN: &str = "does not begin with the user";
const LAST: &str = "the last word is not the user's";
const LONELY: &str = "answers no call directly before it";
const UNANSWERED: &str = "call b, number 1, has no answer";
const MIXED_UP: &str = "Some(\"b\") is answered where a";

#[rustfmt::skip]
#[test]
fn each_fault_is_found_in_chat_completions() {
    each_is_found(PATHS[0], vec![
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
    ]);
}

#[rustfmt::skip]
#[test]
fn each_fault_is_found_in_responses() {
    each_is_found(PATHS[1], vec![
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
    ]);
}

#[rustfmt::skip]
#[test]
fn each_fault_is_found_in_messages() {
    let told = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "seen"});
    let text = |text: &str| json!({"type": "text", "text": text});
    each_is_found(PATHS[2], vec![
        ("/messages/2/content", Cut(1), UNANSWERED),
        ("/messages/2/content/1", Is(text("seen")), UNANSWERED),
        ("/messages/3/content", Is(json!([text("I wait.")])), LONELY),
        ("/messages/2/content", Is(json!([text("Here:"), told("a"), told("b")])), "no text where one has to be"),
        ("/messages/2/content", Is(json!([told("a"), text("and"), told("b")])), "no text where one has to be"),
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
    ]);
}

#[rustfmt::skip]
#[test]
fn each_fault_is_found_in_generate_content() {
    each_is_found(PATHS[3], vec![
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
    ]);
}

#[rustfmt::skip]
#[test]
fn each_fault_is_found_in_ollama_chat() {
    each_is_found(PATHS[4], vec![
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
    ]);
}

#[test]
fn gemini_and_ollama_are_valid_without_ids() {
    fn forget_ids(value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(forget_ids),
            Value::Object(fields) => {
                fields.retain(|name, _| name != "id" && name != "tool_call_id");
                fields.values_mut().for_each(forget_ids);
            }
            _ => {}
        }
    }
    for path in &PATHS[3..] {
        let mut body = valid(path);
        forget_ids(&mut body);
        assert_eq!(valid_request(path, &body), Ok(()), "{path}");
    }
}

#[test]
fn an_unknown_path_is_refused() {
    assert_eq!(valid_request("/v1/models", &json!({})), Err("/v1/models is the path of no wire".to_owned()));
}
