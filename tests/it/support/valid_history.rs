//! What every provider demands of a conversation, as a check.

use serde_json::Value;
use std::collections::HashSet;

/// Whether these messages, as a chat completions request has them, are a history that a provider takes: each
/// call is answered exactly once, directly behind its message, in the order of the calls; ids are unique;
/// arguments are the text of a JSON object; nobody says nothing.
pub(crate) fn valid_history(messages: &[Value]) -> Result<(), String> {
    let mut ids: HashSet<&str> = HashSet::new();
    let mut rest = messages.iter().enumerate();
    while let Some((at, message)) = rest.next() {
        let role = message["role"].as_str().ok_or(format!("message {at} has no role"))?;
        let words = message["content"].as_str().unwrap_or_default();
        let calls = match &message["tool_calls"] {
            Value::Null => &[][..],
            Value::Array(calls) if role == "assistant" && !calls.is_empty() => calls.as_slice(),
            other => return Err(format!("message {at} of {role} has tool_calls {other}")),
        };
        match role {
            "system" | "user" | "assistant" => {}
            "tool" => return Err(format!("message {at} answers no call that stands directly before it")),
            other => return Err(format!("message {at} has the unknown role {other:?}")),
        }
        if words.is_empty() && calls.is_empty() {
            return Err(format!("message {at} of {role} says nothing"));
        }
        for call in calls {
            let id = call["id"].as_str().filter(|id| !id.is_empty()).ok_or("a call has no id")?;
            if !ids.insert(id) {
                return Err(format!("the id {id} is there twice"));
            }
            let function = &call["function"];
            if call["type"] != "function" || function["name"].as_str().is_none_or(str::is_empty) {
                return Err(format!("call {id} calls no function: {call}"));
            }
            let arguments = function["arguments"].as_str().ok_or(format!("call {id} has no arguments"))?;
            let parsed: Result<Value, _> = serde_json::from_str(arguments);
            if !parsed.is_ok_and(|parsed| parsed.is_object()) {
                return Err(format!("the arguments of call {id} are no JSON object: {arguments}"));
            }
            answer(id, rest.next().map(|(_, answer)| answer), calls.len())?;
        }
    }
    Ok(())
}

/// The answer of one call: called in the order of the calls, so order is checked too.
fn answer(id: &str, answer: Option<&Value>, of: usize) -> Result<(), String> {
    let answer = answer.filter(|answer| answer["role"] == "tool");
    let answer = answer.ok_or(format!("call {id}, one of {of}, has no answer behind its message"))?;
    if answer["tool_call_id"] != id {
        return Err(format!("{} is answered where {id} has to be", answer["tool_call_id"]));
    }
    match answer["content"].as_str() {
        None | Some("") => Err(format!("the answer of call {id} says nothing")),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn calls(ids: &[&str]) -> Value {
        let call = |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": "{}" } });
        json!({ "role": "assistant", "content": null, "tool_calls": ids.iter().map(call).collect::<Vec<_>>() })
    }

    fn told(id: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": "seen" })
    }

    fn user() -> Value {
        json!({ "role": "user", "content": "go" })
    }

    #[test]
    fn a_valid_history_is_taken() {
        let last = json!({ "role": "assistant", "content": "done" });
        let system = json!({ "role": "system", "content": "be kind" });
        let two_steps = [
            system,
            user(),
            calls(&["a", "b"]),
            told("a"),
            told("b"),
            calls(&["c"]),
            told("c"),
            last,
            user(),
        ];
        assert_eq!(valid_history(&two_steps), Ok(()));
        assert_eq!(valid_history(&[]), Ok(()));
    }

    #[test]
    fn each_way_to_be_invalid_is_found() {
        let with = |change: fn(&mut Value)| {
            let mut message = calls(&["a"]);
            change(&mut message);
            vec![user(), message, told("a")]
        };
        let cases = [
            (vec![user(), calls(&["a", "b"]), told("a")], "call b, one of 2, has no answer"),
            (vec![user(), calls(&["a"]), user(), told("a")], "call a, one of 1, has no answer"),
            (vec![user(), calls(&["a", "b"]), told("b"), told("a")], "\"b\" is answered where a"),
            (vec![user(), calls(&["a"]), told("a"), told("a")], "message 3 answers no call"),
            (vec![told("a")], "message 0 answers no call"),
            (vec![calls(&["a"]), told("a"), user(), calls(&["a"]), told("a")], "a is there twice"),
            (vec![calls(&["a", "a"]), told("a"), told("a")], "a is there twice"),
            (vec![calls(&[""]), told("")], "a call has no id"),
            (
                vec![calls(&["a"]), json!({ "role": "tool", "tool_call_id": "a", "content": "" })],
                "says nothing",
            ),
            (vec![json!({ "role": "user", "content": "" })], "message 0 of user says nothing"),
            (vec![json!({ "role": "assistant", "content": null })], "message 0 of assistant says nothing"),
            (vec![json!({ "role": "assistant", "content": "x", "tool_calls": [] })], "has tool_calls []"),
            (vec![json!({ "content": "go" })], "message 0 has no role"),
            (vec![json!({ "role": "bot", "content": "go" })], "unknown role \"bot\""),
            (with(|it| it["role"] = json!("user")), "message 1 of user has tool_calls"),
            (with(|it| it["tool_calls"][0]["function"]["arguments"] = json!("{")), "no JSON object: {"),
            (with(|it| it["tool_calls"][0]["function"]["arguments"] = json!("[]")), "no JSON object: []"),
            (with(|it| it["tool_calls"][0]["function"]["arguments"] = json!({})), "call a has no arguments"),
            (with(|it| it["tool_calls"][0]["function"]["name"] = json!("")), "call a calls no function"),
        ];
        for (messages, expected) in cases {
            let found = valid_history(&messages).unwrap_err();
            assert!(found.contains(expected), "{found:?} for {messages:?}");
        }
    }
}
