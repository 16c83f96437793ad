//! What the model is to do: it stands in the user's own words, so that a model without a memory can do it.

use crate::json::At;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One message of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) conversation: String,
    /// Which message of the conversation it is.
    pub(crate) number: u32,
    /// The calls of each step.
    pub(crate) steps: Vec<Vec<PlannedCall>>,
}

/// One call, in which the number `n` names it in the whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedCall {
    pub(crate) tool: String,
    /// Its arguments as the model writes them; not always JSON.
    pub(crate) arguments: String,
}

impl Plan {
    pub(crate) fn words(&self) -> String {
        json!(self).to_string()
    }

    /// What the model says when it knows how all calls of a plan ended.
    pub(crate) fn end_of(conversation: &str, number: u32) -> String {
        format!("That is all of {conversation}, {number}.")
    }
}

impl PlannedCall {
    /// The inputs, if they are any.
    #[cfg(test)]
    fn inputs(&self) -> Option<Value> {
        serde_json::from_str(&self.arguments).ok().filter(Value::is_object)
    }

    /// The call as a model streams it. Its id is one that every step has: providers repeat them.
    pub(crate) fn delta(&self, nth: usize) -> Value {
        json!({ "index": nth, "id": format!("call_{nth}"), "type": "function",
                "function": { "name": self.tool, "arguments": self.arguments } })
    }
}

/// The plan that these messages are about, and how many of its steps were taken.
pub(crate) fn under_way(messages: &[Value]) -> Option<(Plan, usize)> {
    let planned = |message: &Value| {
        let is_user = message.at("/role") == "user";
        serde_json::from_str::<Plan>(message.at("/content").as_str().filter(|_| is_user)?).ok()
    };
    let (place, plan) =
        messages.iter().enumerate().rev().find_map(|(place, message)| Some((place, planned(message)?)))?;
    let since = messages.iter().skip(place + 1);
    let steps = since.filter(|message| message.at("/tool_calls").is_array()).count();
    Some((plan, steps))
}

/// The name of the conversation that these messages are.
pub(crate) fn conversation(messages: &[Value]) -> Option<String> {
    under_way(messages).map(|(plan, _)| plan.conversation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_the_user_count_and_what_the_server_says_in_between_does_not() {
        let plan = |number| Plan {
            conversation: "t1".to_owned(),
            number,
            steps: vec![vec![PlannedCall { tool: "pay".to_owned(), arguments: r#"{"n":1}"#.to_owned() }]],
        };
        let user = |words: &str| json!({ "role": "user", "content": words });
        let step = json!({ "role": "assistant", "tool_calls": [plan(1).steps[0][0].delta(0)] });
        let answer = json!({ "role": "tool", "tool_call_id": "call_0", "content": "paid" });
        let mut messages = vec![user(&plan(1).words()), step.clone(), answer.clone()];
        assert_eq!(under_way(&messages), Some((plan(1), 1)));
        messages.extend([user("[tool outcome] pay, call call_0: paid"), user(&plan(2).words())]);
        assert_eq!(under_way(&messages), Some((plan(2), 0)));
        assert_eq!(under_way(&[user("hello")]), None);
        assert_eq!(plan(1).steps[0][0].inputs(), Some(json!({"n": 1})));
    }
}
