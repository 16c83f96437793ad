//! The plan of the model's calls. The user's message contains the plan, so that the model needs no memory.

use crate::json::JsonPointer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The plan in one message of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) conversation: String,
    /// The number of the message in the conversation.
    pub(crate) number: u32,
    pub(crate) steps: Vec<Vec<PlannedCall>>,
}

/// One call. The number `n` in its arguments is unique in the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedCall {
    pub(crate) tool: String,
    /// The arguments in the text of the model, which is not always JSON.
    pub(crate) arguments: String,
}

impl Plan {
    pub(crate) fn text(&self) -> String {
        json!(self).to_string()
    }

    /// Returns the last text of the model, after the outcomes of all calls of a plan.
    pub(crate) fn end_of(conversation: &str, number: u32) -> String {
        format!("That is all of {conversation}, {number}.")
    }
}

impl PlannedCall {
    /// Returns the inputs, if the arguments are a JSON object.
    #[cfg(test)]
    fn inputs(&self) -> Option<Value> {
        serde_json::from_str(&self.arguments).ok().filter(Value::is_object)
    }

    /// Returns the call in the format of a stream. Every step uses the same ids, because providers repeat
    /// ids.
    pub(crate) fn delta(&self, nth: usize) -> Value {
        json!({ "index": nth, "id": format!("call_{nth}"), "type": "function",
                "function": { "name": self.tool, "arguments": self.arguments } })
    }
}

/// Returns the current plan of a conversation, and the number of its completed steps.
pub(crate) fn current(messages: &[Value]) -> Option<(Plan, usize)> {
    let planned = |message: &Value| {
        let is_user = message.at("/role") == "user";
        serde_json::from_str::<Plan>(message.at("/content").as_str().filter(|_| is_user)?).ok()
    };
    let (index, plan) =
        messages.iter().enumerate().rev().find_map(|(index, message)| Some((index, planned(message)?)))?;
    let since = messages.iter().skip(index + 1);
    let steps = since.filter(|message| message.at("/tool_calls").is_array()).count();
    Some((plan, steps))
}

pub(crate) fn conversation(messages: &[Value]) -> Option<String> {
    current(messages).map(|(plan, _)| plan.conversation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_plan_of_the_user_counts_and_notes_of_the_server_do_not() {
        let plan = |number| Plan {
            conversation: "t1".to_owned(),
            number,
            steps: vec![vec![PlannedCall { tool: "pay".to_owned(), arguments: r#"{"n":1}"#.to_owned() }]],
        };
        let user = |text: &str| json!({ "role": "user", "content": text });
        let step = json!({ "role": "assistant", "tool_calls": [plan(1).steps[0][0].delta(0)] });
        let answer = json!({ "role": "tool", "tool_call_id": "call_0", "content": "paid" });
        let mut messages = vec![user(&plan(1).text()), step.clone(), answer.clone()];
        assert_eq!(current(&messages), Some((plan(1), 1)));
        messages.extend([user("[tool outcome] pay, call call_0: paid"), user(&plan(2).text())]);
        assert_eq!(current(&messages), Some((plan(2), 0)));
        assert_eq!(current(&[user("hello")]), None);
        assert_eq!(plan(1).steps[0][0].inputs(), Some(json!({"n": 1})));
    }
}
