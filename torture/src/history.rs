//! The rules of all providers for a conversation (`/chat/completions`), checked before the model answers.

use crate::json::JsonPointer;
use serde_json::Value;
use std::collections::HashSet;

/// Returns the reason why providers would refuse these messages, if there is one.
///
/// The rules: each call has exactly one answer, directly after its message and in the order of the calls. Ids
/// are unique. Arguments are JSON objects. No message is empty. The last message is not from the model. A user message
/// follows neither another one nor an answer.
pub(crate) fn refusal(messages: &[Value]) -> Option<String> {
    check(messages).err()
}

fn check(messages: &[Value]) -> Result<(), String> {
    let mut ids = HashSet::new();
    let mut started = false;
    let mut awaits_the_model = false;
    let mut rest = messages.iter().enumerate().peekable();
    while let Some((at, message)) = rest.next() {
        let role = message.at("/role").as_str().unwrap_or_default();
        match role {
            "system" if started => return Err(format!("a system message after the start, at {at}")),
            "system" => {}
            "user" if awaits_the_model => {
                return Err(format!("the user speaks in place of the model, at {at}"));
            }
            "user" => {
                (started, awaits_the_model) = (true, true);
                check_text(message, at)?;
            }
            _ if !started => return Err("the first message is not from the user".to_owned()),
            "assistant" => {
                let Some(calls) = message.at("/tool_calls").as_array() else {
                    awaits_the_model = false;
                    check_text(message, at)?;
                    continue;
                };
                if calls.is_empty() {
                    return Err(format!("an empty list of calls at {at}"));
                }
                // The answers follow.
                awaits_the_model = true;
                for call in calls {
                    let id = call_id(call)?;
                    if !ids.insert(id.clone()) {
                        return Err(format!("the id {id} occurs twice"));
                    }
                    let answer = rest.next_if(|(_, next)| next.at("/role") == "tool");
                    let (index, answer) =
                        answer.ok_or(format!("call {id} has no answer directly after its message"))?;
                    if answer.at("/tool_call_id") != id.as_str() {
                        return Err(format!(
                            "an answer to {} in the place of {id}",
                            answer.at("/tool_call_id")
                        ));
                    }
                    check_text(answer, index)?;
                }
            }
            "tool" => return Err(format!("the answer at {at} follows no message with its call")),
            other => return Err(format!("the role {other:?} at {at}")),
        }
    }
    match messages.last() {
        None => Err("no messages".to_owned()),
        Some(last) if last.at("/role") == "assistant" => Err("the last message is from the model".to_owned()),
        Some(_) => Ok(()),
    }
}

/// Returns the id of a valid call.
fn call_id(call: &Value) -> Result<String, String> {
    let id = call.at("/id").as_str().filter(|id| !id.is_empty()).ok_or("a call without an id")?;
    let arguments = call.at("/function/arguments").as_str().unwrap_or_default();
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(_)) => Ok(id.to_owned()),
        _ => Err(format!("the arguments of {id} are no JSON object: {arguments}")),
    }
}

fn check_text(message: &Value, at: usize) -> Result<(), String> {
    match message.at("/content").as_str() {
        Some(text) if !text.is_empty() => Ok(()),
        _ => Err(format!("an empty message at {at}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(id: &str) -> Value {
        json!({ "id": id, "type": "function", "function": { "name": "pay", "arguments": "{}" } })
    }

    fn calls(ids: &[&str]) -> Value {
        json!({ "role": "assistant", "content": null, "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>() })
    }

    fn answer(id: &str) -> Value {
        json!({ "role": "tool", "tool_call_id": id, "content": "done" })
    }

    fn user() -> Value {
        json!({ "role": "user", "content": "go" })
    }

    #[test]
    fn a_valid_conversation_is_accepted() {
        let words = json!({ "role": "assistant", "content": "Done." });
        let first = [user(), calls(&["a", "b"]), answer("a"), answer("b")];
        let second = [calls(&["c"]), answer("c"), words, user()];
        assert_eq!(refusal(&[first, second].concat()), None);
    }

    #[test]
    fn an_invalid_conversation_is_refused() {
        let mut broken = calls(&["a"]);
        broken["tool_calls"][0]["function"]["arguments"] = "{".into();
        let empty = json!({ "role": "tool", "tool_call_id": "a", "content": "" });
        let invalid: [&[Value]; 11] = [
            &[],
            &[calls(&["a"]), answer("a")],
            &[user(), calls(&["a"]), user()],
            &[user(), calls(&["a", "b"]), answer("b"), answer("a")],
            &[user(), calls(&["a"]), answer("a"), answer("a")],
            &[user(), calls(&["a"]), answer("a"), calls(&["a"]), answer("a")],
            &[user(), user()],
            &[user(), calls(&["a"]), answer("a"), user()],
            &[user(), broken, answer("a")],
            &[user(), calls(&["a"]), empty],
            &[user(), json!({ "role": "assistant", "content": "hello" })],
        ];
        for messages in invalid {
            assert!(refusal(messages).is_some(), "{messages:?}");
        }
    }
}
